package chat

import "testing"

// TestRunDir: where a run starts, with ~ at the head of its cwd as the home, and nowhere else.
func TestRunDir(t *testing.T) {
	for cwd, want := range map[string]string{
		"": "/h/a", "b": "/h/a/b", "/tmp/x/..": "/tmp", "~": "/h/a", "~/b/c": "/h/a/b/c",
		"~b": "/h/a/~b", "./~/b": "/h/a/~/b",
	} {
		if got := (RunSpec{Cwd: cwd}).Dir("/h/a"); got != want {
			t.Errorf("%q is %s, want %s", cwd, got, want)
		}
	}
}
