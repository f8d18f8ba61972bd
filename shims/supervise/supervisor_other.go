//go:build !linux

package supervise

// Main is for Linux.
func Main() int { return 1 }
