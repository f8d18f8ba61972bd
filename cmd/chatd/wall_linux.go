package main

import (
	"context"

	"github.com/chatd/chatd/provision"
)

func wallHost(ctx context.Context, cfg Config) error {
	if err := needRoot("raise the wall"); err != nil {
		return err
	}
	opt, err := provisionOptions(cfg)
	if err != nil {
		return err
	}
	return provision.Wall(ctx, opt)
}
