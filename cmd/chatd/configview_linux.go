package main

import (
	"errors"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/provision"
	"github.com/chatd/chatd/state"
)

func init() { checkView, checkPlaces = checkViewHere, provision.CheckPlaces }

// checkViewHere looks at this host, as far as this user may.
func checkViewHere(cfg Config, p chat.Profile) (key string, err error) {
	err = provision.CheckView(provision.Options{
		Backend: cfg.Backend, State: cfg.State, Run: cfg.Run, Homes: cfg.Homes, Userdb: cfg.UserDB,
		UIDs: state.Range{Low: cfg.UIDs.Low, High: cfg.UIDs.High},
	}, p)
	var at *provision.KeyError
	if errors.As(err, &at) {
		return at.Key, at.Err
	}
	return "expose_paths", err
}
