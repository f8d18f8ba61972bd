//go:build !failpoints

package provision

// failpoint is where a build with the tag failpoints may be killed; here it is nothing.
func failpoint(string) {}
