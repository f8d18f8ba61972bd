//go:build !linux

package minder

// Main is for Linux.
func Main() int { return 1 }
