package main

import (
	"context"

	"github.com/chatd/chatd/front"
)

func runFront(ctx context.Context) error { return front.Run(ctx, version) }
