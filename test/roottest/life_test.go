package roottest

import (
	"testing"
	"time"

	"github.com/chatd/chatd/chat"
)

func TestFirst(t *testing.T) {
	m := open(t, options(t))
	h, err := m.Host(operator(t.Context()))
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range h.Layers {
		t.Logf("%-10s %-6s %s | %s", l.Name, l.State, l.By, l.Probe)
	}
	a := create(t, m, "../../etc", "default")
	t.Logf("%+v", a)
	r := run(t, m, a.ID, "echo x 2>/dev/null; echo $?; ls -la /dev; { printf . 1<>/opt/chatd/prompt; } 2>/dev/null; echo $?")
	t.Logf("%+v", r)
	if err := m.Input(operator(t.Context()), a.ID, chat.Input{Text: "declare -p PROMPT_COMMAND; type __chatd_prompt; ls -l /opt/chatd/prompt; echo $-; printf . 1<>/opt/chatd/prompt; echo $?; ps ax | head -5 | cut -c1-80", Enter: true}); err != nil {
		t.Fatal(err)
	}
	time.Sleep(time.Second)
	s, err := m.Screen(operator(t.Context()), a.ID)
	t.Log(s.Text, err)
}
