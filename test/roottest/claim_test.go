package roottest

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// TestSecondServe: a chatd in the network namespace of another one ends at once, names that one's
// process, and touches none of its packet rules.
func TestSecondServe(t *testing.T) {
	d := startDaemon(t, options(t), "")
	rules := func() string {
		out := must.Get(exec.Command("iptables", "-S").CombinedOutput())(t)
		return string(out)
	}
	before := rules()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	other := options(t)
	out, err := exec.CommandContext(ctx, programs.chatd, "serve", "--config", configFile(t, other)).
		CombinedOutput()
	if want := fmt.Sprintf("process %d has", d.cmd.Process.Pid); err == nil || ctx.Err() != nil ||
		!strings.Contains(string(out), want) {
		t.Errorf("%v: %s, want %q", err, out, want)
	}
	expect.Equal(t, rules(), before, "the rules were\n%s\nand are\n", before)
	expect.True(t, expect.Err(os.Stat(other.Homes)) != nil, "it made homes")
}
