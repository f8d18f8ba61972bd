package main

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/config/configfile"
)

// wall raises what the config names and says so; what fails is the exit code.
func TestWall(t *testing.T) {
	old := askRoot
	t.Cleanup(func() { askRoot = old })
	for _, c := range []struct {
		name, args string
		err        error
		code       int
		out        string
	}{
		{"people", "", nil, 0, "uids 1879048192-1895825407 are walled\n"},
		{"programs", "--json", nil, 0, `"uids": "1879048192-1895825407"`},
		{"no iptables", "", fmt.Errorf("cannot find iptables: %w", chat.ErrUnsupported), 69, "cannot find iptables"},
		{"no root", "", fmt.Errorf("cannot raise the wall: %w", chat.ErrDenied), 3, "cannot raise the wall"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var asked configfile.Flags
			askRoot = func(_ context.Context, _ string, f configfile.Flags, _ ...string) ([]byte, error) {
				asked = f
				return []byte(`"1879048192-1895825407"`), c.err
			}
			var out strings.Builder
			args := append([]string{"chatd", "wall", "--config", "testdata/empty.yaml"}, strings.Fields(c.args)...)
			if code := mainWith(t.Context(), args, strings.NewReader(""), &out, &out); code != c.code || !strings.Contains(out.String(), c.out) {
				t.Errorf("code %d, want %d: %s", code, c.code, out.String())
			}
			if asked.File != "testdata/empty.yaml" {
				t.Errorf("raised for %+v", asked)
			}
		})
	}
}
