package roottest

import (
	"encoding/json"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/chatd/chatd/test/must"
)

// openLine is a line of the audit log about opens that the kernel refused.
type openLine struct {
	Chat   string            `json:"chat"`
	Detail map[string]string `json:"detail"`
}

// TestRefusedOpensAreAudited: an open that the kernel refuses leaves a line that names file,
// rule and place, also of a chat that ends its session right behind it. A chat that has
// thousands refused fills no log and hides no line of another's; what has none is counted.
func TestRefusedOpensAreAudited(t *testing.T) {
	opt := ruledOptions(t, "access:\n  deny: ['**/*.pem']\n")
	m := must.Get(openManager(t.Context(), opt))(t)
	defer func() { open(t, opt) }() // which reaps them
	loud, quiet := sleeper(t, m, "loud"), sleeper(t, m, "quiet")
	putFile(t, loud, "mask/old.pem", secret)
	wake(t, m, loud.ID)
	wake(t, m, quiet.ID)
	lines := func(id string) (all []openLine) {
		for _, text := range auditLines(t, opt, `"open"`, `"denied"`, id) {
			var l openLine
			must.Do(t, json.Unmarshal([]byte(text), &l))
			all = append(all, l)
		}
		return all
	}
	refused(t, m, loud, "cat mask/old.pem") // it was there when the session began
	const made = 400
	began := time.Now()
	run(t, m, loud.ID, fmt.Sprintf("for i in $(seq %d); do mkdir d$i; echo x >d$i/k.pem; done; true", made))
	putFile(t, quiet, "sub/key.pem", secret)
	refused(t, m, quiet, "cat sub/key.pem")
	must.Do(t, func() error { _, err := m.Sleep(operator(t.Context()), quiet.ID); return err }())

	of := lines(string(quiet.ID))
	until(t, "the line of the refused open",
		func() bool { of = lines(string(quiet.ID)); return len(of) > 0 })
	must.True(t, len(of) == 1, "%d lines of the chat with one refused open: %v", len(of), of)
	want := map[string]string{"path": strconv.Quote(quiet.Home + "/sub/key.pem"), "rule": strconv.Quote("deny **/*.pem"), "place": strconv.Quote("rules.yaml:2"), "layer": "global deny", "by": "the kernel", "times": "1"}
	for k, v := range want {
		if of[0].Detail[k] != v {
			t.Errorf("%s is %q, want %q: %v", k, of[0].Detail[k], v, of[0].Detail)
		}
	}
	// Denials that are counted and have no line yet are written when chatd ends.
	must.Do(t, m.Close())
	of, sum := lines(string(loud.ID)), 0
	for _, l := range of {
		n := must.Get(strconv.Atoi(l.Detail["times"] + l.Detail["more"]))(t)
		sum += n
	}
	if max := 20 + 3 + 2*int(time.Since(began)/time.Minute); sum != made+1 || len(of) > max {
		t.Errorf("%d refused opens are accounted for in %d lines, want %d in at most %d", sum, len(of), made+1, max)
	}
}
