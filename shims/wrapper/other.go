//go:build !linux

package wrapper

// Main runs nothing outside Linux.
func Main(string, []string) int { return 125 }
