package main

import (
	"context"

	"github.com/chatd/chatd/provision"
	"github.com/chatd/chatd/state"
)

// wallHost reads nothing of the config but the uids: at boot the rest may not be
// there yet.
func wallHost(ctx context.Context, cfg Config) error {
	if err := needRoot("raise the wall"); err != nil {
		return err
	}
	return provision.Wall(ctx, provision.Options{UIDs: state.Range{Low: cfg.UIDs.Low, High: cfg.UIDs.High}})
}
