package roottest

import (
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/chatd/chatd/chat"
	unprivileged "github.com/chatd/chatd/front"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// TestStyledScreen: the screen is text; with styles it has SGR sequences, and none that a chat
// could do more with.
func TestStyledScreen(t *testing.T) {
	m := open(t, attackOptions(t))
	k := unprivileged.RenderTerminals(front(t, m))
	ctx := operator(t.Context())
	c := create(t, m, "styled", "default")
	typed(t, m, c.ID, `printf '\e]0;title\a\e]8;;http://192.0.2.1/\aa link\e]8;;\a \e[1;31mred\e[0m %s\n' end`)
	for deadline := time.Now().Add(longEnough); ; time.Sleep(20 * time.Millisecond) {
		plain := must.Get(m.Screen(ctx, c.ID))(t)
		styled := must.Get(k.ScreenWith(ctx, c.ID, chat.ScreenSpec{Styles: true}))(t)
		if !strings.Contains(plain.Text, "a link red end") {
			must.True(t, !time.Now().After(deadline), "the screen is %q", plain.Text)
			continue
		}
		expect.True(t, !strings.Contains(plain.Text, "\x1b"),
			"the plain screen has sequences: %q", plain.Text)
		sgr := regexp.MustCompile(`\x1b\[[0-9;:]*m`)
		rest := sgr.ReplaceAllString(styled.Text, "")
		if !regexp.MustCompile(`\x1b\[[0-9;]*31[0-9;]*mred\x1b\[`).MatchString(styled.Text) || strings.Contains(rest, "\x1b") || !strings.Contains(rest, "a link red end") {
			t.Errorf("the styled screen is %q", styled.Text)
		}
		break
	}
	must.Get(m.Sleep(ctx, c.ID))(t)
	expect.Is(t, expect.Err(m.ScreenWith(ctx, c.ID, chat.ScreenSpec{Styles: true})), chat.ErrWrongPhase,
		"asleep")
}
