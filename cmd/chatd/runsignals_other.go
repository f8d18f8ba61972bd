//go:build !unix

package main

import "os"

// forwardedNames are the signals that chatd run passes on.
func forwardedNames() map[string]os.Signal { return map[string]os.Signal{"INT": os.Interrupt} }
