package terminal

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
	"github.com/chatd/chatd/tmux"
)

// TestEnters: after these a shell may show a prompt anew, under whichever name a key is pressed;
// what waits for the prompt must not take the old one for it.
func TestEnters(t *testing.T) {
	for _, in := range []chat.Input{
		{Enter: true}, {Text: "true\n"}, {Text: "true\r"}, {Keys: []string{"Up", "Enter"}}, {Keys: []string{"enter"}}, {Keys: []string{"return"}},
		{Keys: []string{"C-c"}}, {Keys: []string{"ctrl-c"}}, {Keys: []string{"ctrl-m"}}, {Keys: []string{"alt-enter"}}, {Keys: []string{"alt-ctrl-j"}},
	} {
		expect.True(t, enters(in), "%+v enters nothing", in)
	}
	for _, in := range []chat.Input{{Text: "enter"}, {Keys: []string{"up", "f1", "x", "alt-x", "shift-tab"}}} {
		expect.True(t, !enters(in), "%+v enters something", in)
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
		expect.True(t, got == c.want, "%q is visible: %t, want %t", c.pieces, got, c.want)
	}
}

// TestScreenAheadOfTheLog: what the screen showed of a pattern is in the answer, also where the log
// has it later, and the screen has something else by then.
func TestScreenAheadOfTheLog(t *testing.T) {
	log := must.Get(openRing(t.TempDir(), 1<<20))(t)
	add := func(text string) {
		expect.NoError(t, log.append([]byte(text)))
	}
	looks := 0
	w := waiter{ring: log, until: chat.UntilScreen, shows: func() bool {
		if looks++; looks == 1 {
			time.AfterFunc(screenGap/10, func() { add("n = 7\n") })
		}
		return looks == 1
	}}
	add("n = 6\n")
	until, err := w.wait(t.Context())
	if _, end, _ := log.bounds(); err != nil || until != chat.UntilScreen || w.cursor != end || looks != 2 {
		t.Errorf("until %s at %d of %d after %d looks: %v", until, w.cursor, end, looks, err)
	}
}

// TestFirstPromptIsLate: what a new session's terminal shows comes late on a busy host; an input
// waits for its first prompt, so that this does not count as the answer. It is waited for once.
func TestFirstPromptIsLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := must.Get(openRing(t.TempDir(), 1<<20))(t)
		await := func(l *Recording, most time.Duration) {
			begin := time.Now()
			l.awaitPrompt(t.Context(), log)
			if took := time.Since(begin); took > most || took < most-time.Second {
				t.Errorf("it was waited for %s, want %s", took, most)
			}
		}
		l := new(Recording)
		go func() {
			time.Sleep(3 * time.Second)
			l.look([]tmux.Mark{{Kind: 'A'}, {Kind: 'B'}})
			expect.NoError(t, log.append([]byte("$ ")))
		}()
		await(l, 3*time.Second)
		silent := new(Recording)
		await(silent, firstPrompt)
		await(silent, promptPast)
	})
}
