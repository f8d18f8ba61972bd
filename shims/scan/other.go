//go:build !linux

package scan

// Main does not run here.
func Main() int { return 69 }
