//go:build !failpoints

package sys

// Failpoint is where a build with the tag failpoints kills what a test names; here it is nothing.
func Failpoint(string) {}
