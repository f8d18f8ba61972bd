package main

import (
	"context"
	"errors"
	"io"
	"path/filepath"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/filerules"
	"github.com/chatd/chatd/internal/config"
	"github.com/chatd/chatd/provision"
	"github.com/chatd/chatd/provision/exposure"
	"github.com/chatd/chatd/provision/policy"
	"github.com/chatd/chatd/state"
)

// check looks at this host for what a config names, or a file of rules, as far as this user may. It
// needs no root. chatd prints the config and all else that can be said without the host.
func check(ctx context.Context, a arguments, out io.Writer) error {
	if a.policy != "" {
		return checkPolicy(ctx, a, out)
	}
	cfg, err := a.config(ctx)
	if err != nil {
		return err
	}
	return checkConfig(cfg)
}

// checkConfig looks at this host for the names and paths that a config has.
func checkConfig(cfg config.Config) error {
	return errors.Join(cfg.CheckViews(checkView), cfg.CheckNames(func(database, name string) error {
		_, err := entryOf(database, name, 3)
		return err
	}))
}

// checkPolicy writes the rules that match too many places, as JSON: in a home where those of
// the default config are.
func checkPolicy(ctx context.Context, a arguments, out io.Writer) error {
	p, err := a.rules(ctx, a.policy)
	if err != nil {
		return err
	}
	refused := filerules.Faults{}
	err = policy.CheckPlaces(ctx, p, filepath.Join(config.Homes, "0000000000000000"))
	if err != nil && !errors.As(err, &refused) {
		return err
	}
	return answer(out, refused)
}

// checkView looks at this host, as far as this user may.
func checkView(cfg config.Config, p chat.Profile) (key string, err error) {
	err = provision.CheckView(provision.Options{
		Backend: cfg.Backend, State: cfg.State, Run: cfg.Run, Homes: cfg.Homes, Userdb: cfg.UserDB,
		UIDs: state.Range(cfg.UIDs),
	}, p)
	var at *exposure.KeyError
	if errors.As(err, &at) {
		return at.Key, at.Err
	}
	return "expose_paths", err
}
