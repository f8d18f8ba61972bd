//go:build !linux

package plan

func hasFileCapabilities(string) (bool, error) { return false, nil }
