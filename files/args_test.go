package files

import (
	"errors"
	"strings"
	"testing"

	"github.com/chatd/chatd/chat"
)

// TestWriteWithoutContent: the message names the argument that is missing or duplicate.
func TestWriteWithoutContent(t *testing.T) {
	text := "x"
	for _, c := range []struct {
		args WriteFile
		want string
	}{
		{WriteFile{Path: "f"}, `cannot write "f": content is missing`},
		{WriteFile{Path: "f", Content: &text, Stream: true}, "it has content, and a stream follows"},
	} {
		if err := c.args.Validate(); !errors.Is(err, chat.ErrInvalid) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v, want %q", c.args, err, c.want)
		}
	}
	for _, args := range []WriteFile{{Path: "f", Content: &text}, {Path: "f", Stream: true}} {
		if err := args.Validate(); err != nil {
			t.Errorf("%+v: %v", args, err)
		}
	}
}
