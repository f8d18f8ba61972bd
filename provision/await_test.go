package provision

import (
	"testing"

	"github.com/chatd/chatd/chat"
)

// TestEnters: after these a shell may show a prompt anew, under whichever name a key is pressed;
// what waits for the prompt must not take the old one for it.
func TestEnters(t *testing.T) {
	for _, in := range []chat.Input{
		{Enter: true}, {Text: "true\n"}, {Text: "true\r"}, {Keys: []string{"Up", "Enter"}}, {Keys: []string{"enter"}}, {Keys: []string{"return"}},
		{Keys: []string{"C-c"}}, {Keys: []string{"ctrl-c"}}, {Keys: []string{"ctrl-m"}}, {Keys: []string{"alt-enter"}}, {Keys: []string{"alt-ctrl-j"}},
	} {
		if !enters(in) {
			t.Errorf("%+v enters nothing", in)
		}
	}
	for _, in := range []chat.Input{{Text: "enter"}, {Keys: []string{"up", "f1", "x", "alt-x", "shift-tab"}}} {
		if enters(in) {
			t.Errorf("%+v enters something", in)
		}
	}
}
