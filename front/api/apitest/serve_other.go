//go:build !linux

package apitest

import (
	"errors"

	"github.com/chatd/chatd/internal/filewire"
)

// serve would start a tool: package files is for Linux only.
func serve(*filewire.LiveTool, *tool) (chan struct{}, error) { return nil, errors.ErrUnsupported }
