//go:build !linux

package main

import "github.com/chatd/chatd/config"

// usedUIDs is empty: no chatd serve runs here.
func usedUIDs(config.Config) ([]uint32, error) { return nil, nil }
