package terminal

import (
	"testing"
	"time"

	"github.com/chatd/chatd/test/must"
)

// TestEcho: the end of a text is found in what a program draws, in pieces and amid sequences, and
// Enter is due after it; what else is drawn says nothing about the text.
func TestEcho(t *testing.T) {
	for _, c := range []struct {
		text  string
		drawn []string
		shown bool
	}{
		{"first\nsecond line", []string{"\x1b[2K> first", "\r\n\x1b[1;31msec", "ond\x1b[5Cli", "\x1b[0mne "}, true},
		{"tell @alice", []string{"working \x1b[3D", "| thinking"}, false},
		{"a_word_that_is_longer_than_what_is_looked_for", []string{"…", "n_what_is_looked_for"}, true},
		{"grüße", []string{"gr\xc3", "\xbc\xc3\x9f", "e"}, true},
		{"  \n", []string{"anything"}, true},
		{"silent", nil, false},
	} {
		r := must.Get(openRing(t.TempDir(), 1<<20))(t)
		add := func(text string) {
			t.Helper()
			must.Do(t, r.append([]byte(text)))
		}
		add("what was there before: " + c.text)
		_, before, _ := r.bounds()
		e := newEcho(before, c.text)
		for _, piece := range c.drawn {
			add(piece)
			must.True(t, e.read(r), "cannot read the log")
		}
		began := time.Now()
		due := e.due(began).Sub(began)
		if e.shown != c.shown || c.shown != (due <= shownPause) || !c.shown && len(c.drawn) > 0 != (due < silentPause) {
			t.Errorf("%q in %q: shown %t, Enter is due in %s", c.text, c.drawn, e.shown, due)
		}
		for end := began.Add(echoTimeout); e.printed.Before(end) && len(c.drawn) > 0; e.printed = e.printed.Add(shownPause / 2) {
			if due := e.due(began); due.After(end) {
				t.Errorf("%q: a program that prints all the time gets Enter after %s", c.text, due.Sub(began))
			}
		}
	}
}
