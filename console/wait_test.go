package console

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

// TestVisible: what moves the cursor or sets a title is no output, in whichever pieces it comes.
func TestVisible(t *testing.T) {
	for _, c := range []struct {
		pieces []string
		want   bool
	}{
		{[]string{"x"}, true},
		{[]string{"\x1b[31", "mred"}, true},
		{[]string{"gr\xc3", "\xbc"}, true},
		{[]string{" \r\n\t\x1b[2;5H\x1b[K\x1b[?25l\a\b"}, false},
		{[]string{"\x1b]0;\u2733 ti", "tle\a", "\x1bPq#1~", "~\x1b\\"}, false},
		{[]string{"\x1b[1", ";31m", "\u00a0\u200b"}, false},
	} {
		var w waiter
		got := false
		for _, piece := range c.pieces {
			got = w.visible([]byte(piece)) || got
		}
		if got != c.want {
			t.Errorf("%q is visible: %t, want %t", c.pieces, got, c.want)
		}
	}
}
