package roottest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// agent is a program on the whole terminal as coding agents are: what it reads in one piece and
// is more than one key it takes for a paste, in which Enter is a line end, as it is right after
// one. Where a paste says "slowly" it is at work on it for a while, and draws something else first.
const agent = `
use Time::HiRes "sleep", "time";
$| = 1; system "stty raw -echo";
sub show { print "\r\n$_[0]\r\n> " }
print "\e[?2004h"; show("agent is up"); my ($draft, $pasted) = ("", 0);
while (sysread(STDIN, my $b, 1 << 20)) {
	if ($b eq "\r" && time - $pasted > .04) {
		last if $draft eq "quit";
		if ($draft =~ /^zones/) { print "\e]133;A\a$draft\e]133;B\a" }
		show("SUBMITTED<$draft>"); $draft = "";
	} elsif ($b eq "\e[B") { show("DOWN") }
	else {
		if ($b =~ /slowly/) { print "\r\nat work\r\n"; sleep .8 }
		$pasted = time if length $b > 1;
		$b =~ s/\e\[20[01]~//g; $b =~ s/\r/+/g; $draft .= $b; print $b;
	}
}
print "\e[?2004l"; system "stty sane";
`

// startAgent has the chat's terminal run it under a name.
func startAgent(t *testing.T, m *manager, c chat.Chat) {
	t.Helper()
	must.Do(t, os.WriteFile(filepath.Join(c.Home, "agent.pl"), []byte(agent), 0o644))
	since := endOfLog(t, m, c.ID)
	must.Do(t, m.Input(operator(t.Context()), c.ID, chat.Input{Text: "(exec -a agent perl agent.pl)", Enter: true}))
	until(t, "the agent is up", func() bool { return strings.Contains(printed(t, m, c.ID, since), "agent is up\r\n> ") })
}

// says waits for what the terminal prints from a cursor on.
func says(t *testing.T, m *manager, id chat.ID, since int64, want string) {
	t.Helper()
	until(t, want, func() bool { return strings.Contains(printed(t, m, id, since), want) })
}

// TestSubmit: a text and Enter are submitted to a program that takes what comes at once for a
// paste; so are keys that follow each other.
func TestSubmit(t *testing.T) {
	m := open(t, attackOptions(t))
	ctx := operator(t.Context())
	c := create(t, m, "submit", "default")
	startAgent(t, m, c)
	for i := range 3 {
		since := endOfLog(t, m, c.ID)
		must.Do(t, m.Input(ctx, c.ID, chat.Input{Text: fmt.Sprintf("hello %d\nworld", i), Enter: true}))
		says(t, m, c.ID, since, fmt.Sprintf("SUBMITTED<hello %d+world>", i))
	}
	since := endOfLog(t, m, c.ID)
	must.Do(t, m.Input(ctx, c.ID, chat.Input{Text: "hello\nslowly", Enter: true}))
	says(t, m, c.ID, since, "SUBMITTED<hello+slowly>")
	since = endOfLog(t, m, c.ID)
	must.Do(t, m.Input(ctx, c.ID, chat.Input{Text: "é 'k'", KeyByKey: true, Enter: true}))
	says(t, m, c.ID, since, "SUBMITTED<é 'k'>")
	must.Do(t, m.Input(ctx, c.ID, chat.Input{Keys: []string{"down", "y", "enter"}}))
	says(t, m, c.ID, since, "SUBMITTED<y>")
	got := printed(t, m, c.ID, since)
	expect.True(t, strings.Contains(got, "DOWN"), "keys came at once: %q", got)
	// Many at once: each is submitted whole.
	since = endOfLog(t, m, c.ID)
	var all sync.WaitGroup
	for i := range 4 {
		all.Go(func() {
			expect.NoError(t, m.Input(ctx, c.ID, chat.Input{Text: fmt.Sprintf("at once %d", i), Enter: true}))
		})
	}
	all.Wait()
	for i := range 4 {
		says(t, m, c.ID, since, fmt.Sprintf("SUBMITTED<at once %d>", i))
	}
}

// onlyIf is an input that makes a file if a shell gets it.
func onlyIf(c chat.Chat, prompt, program string) (in chat.Input, ran func() bool) {
	file := filepath.Join(c.Home, "ran")
	_ = os.Remove(file) // not there yet
	return chat.Input{Text: "touch ~/ran", Enter: true, OnlyIf: &chat.OnlyIf{Prompt: prompt, Program: program}}, exists(file)
}

// TestOnlyIf: a message for a program is not typed into a shell, nor a command into a program.
func TestOnlyIf(t *testing.T) {
	opt := attackOptions(t)
	m := must.Get(openManager(t.Context(), opt))(t)
	ctx := operator(t.Context())
	c := create(t, m, "only if", "default")
	refused := func(when, prompt, program, seen string) {
		t.Helper()
		in, ran := onlyIf(c, prompt, program)
		since := endOfLog(t, m, c.ID)
		expect.Says(t, m.Input(ctx, c.ID, in), chat.ErrConflict, seen,
			"%s: prompt %q, program %q", when, prompt, program)
		if run(t, m, c.ID, "sleep 0.3"); ran() || strings.Contains(printed(t, m, c.ID, since), "touch") {
			t.Errorf("%s: prompt %q, program %q: it was typed", when, prompt, program)
		}
	}
	runs := func(when, prompt, program string) {
		t.Helper()
		in, ran := onlyIf(c, prompt, program)
		must.Do(t, m.Input(ctx, c.ID, in))
		until(t, when, ran)
	}
	submits := func(when, prompt, program string) {
		t.Helper()
		in, _ := onlyIf(c, prompt, program)
		since := endOfLog(t, m, c.ID)
		err := m.Input(ctx, c.ID, in)
		must.True(t, err == nil, "%s: %v", when, err)
		says(t, m, c.ID, since, "SUBMITTED<touch ~/ran>")
	}
	refused("at the prompt", chat.PromptAbsent, "", `"bash" is in front`)
	refused("at the prompt", "", "agent", `"bash" is in front`)
	runs("at the prompt", chat.PromptPresent, "")
	runs("at the prompt", chat.PromptPresent, "bash")
	startAgent(t, m, c)
	refused("under the agent", chat.PromptPresent, "", "has not said that it is at one")
	refused("under the agent", "", "claude", `"agent" is in front`)
	submits("under the agent", chat.PromptAbsent, "")
	submits("under the agent", chat.PromptAbsent, "agent")
	// An agent that marks its messages as if they were prompts.
	since := endOfLog(t, m, c.ID)
	must.Do(t, m.Input(ctx, c.ID, chat.Input{Text: "zones", Enter: true}))
	says(t, m, c.ID, since, "SUBMITTED<zones>")
	refused("under an agent with marks", chat.PromptPresent, "", `"agent" is in front`)
	submits("under an agent with marks", chat.PromptAbsent, "")

	must.Do(t, m.Close())
	m = open(t, opt) // which knows only what was printed
	submits("after a restart", "", "agent")
	submits("after a restart", chat.PromptAbsent, "")
	since = endOfLog(t, m, c.ID)
	must.Do(t, m.Input(ctx, c.ID, chat.Input{Text: "quit", Enter: true}))
	promptAfter(t, m, c.ID, since, "quit")
	refused("when the agent has ended", chat.PromptAbsent, "", `"bash" is in front`)
	refused("when the agent has ended", chat.PromptAbsent, "agent", `"bash" is in front`)
	in, ran := onlyIf(c, "", "")
	in.OnlyIf = nil // which is what it is for
	must.Do(t, m.Input(ctx, c.ID, in))
	until(t, "without a condition the message is run", ran)

	// A script of a shell is told from a prompt by the marks.
	must.Do(t, os.WriteFile(filepath.Join(c.Home, "script"), []byte("read -r a; echo \"SUBMITTED<$a>\"; exec sleep 1000"), 0o644))
	since = endOfLog(t, m, c.ID)
	must.Do(t, m.Input(ctx, c.ID, chat.Input{Text: "bash script", Enter: true}))
	says(t, m, c.ID, since, "\x1b]133;C")
	submits("under a script", chat.PromptAbsent, "")
	must.Do(t, m.Input(ctx, c.ID, chat.Input{Keys: []string{"ctrl-c"}, OnlyIf: &chat.OnlyIf{Program: "sleep"}}))
	promptAfter(t, m, c.ID, since, "^C")
}

// TestOnlyIfAsleep: a condition for a program does not wake a chat.
func TestOnlyIfAsleep(t *testing.T) {
	m := open(t, attackOptions(t))
	ctx := operator(t.Context())
	c := create(t, m, "asleep", "default")
	must.Get(m.Sleep(ctx, c.ID))(t)
	for _, o := range []chat.OnlyIf{{Prompt: chat.PromptAbsent}, {Program: "agent"}} {
		expect.Says(t, m.Input(ctx, c.ID, chat.Input{Enter: true, OnlyIf: &o}), chat.ErrConflict, "asleep",
			"asleep")
	}
	got, err := m.Get(ctx, c.ID)
	expect.True(t, err == nil && !got.Awake, "a condition woke the chat: %v, %v", got.Awake, err)
	in, ran := onlyIf(c, chat.PromptPresent, "")
	must.Do(t, m.Input(ctx, c.ID, in))
	until(t, "what was typed when it woke", ran)
}

// TestOnlyIfWhileItEnds: a message that meets an agent's end is never run.
func TestOnlyIfWhileItEnds(t *testing.T) {
	m := open(t, attackOptions(t))
	ctx := operator(t.Context())
	c := create(t, m, "ends", "default")
	met := 0
	for i := range 12 {
		startAgent(t, m, c)
		ended := make(chan error, 1)
		since := endOfLog(t, m, c.ID)
		go func() {
			_, err := m.Run(operator(context.WithoutCancel(t.Context())), c.ID, chat.RunSpec{Command: fmt.Sprintf("sleep 0.%02d; pkill -9 -x perl; stty sane </dev/null; true", 3*i)})
			ended <- err
		}()
		in, ran := onlyIf(c, chat.PromptAbsent, "")
		err := m.Input(ctx, c.ID, in)
		if err == nil {
			met++
		} else if !errors.Is(err, chat.ErrConflict) {
			t.Error(err)
		}
		must.Do(t, <-ended)
		promptAfter(t, m, c.ID, since, "Killed")
		must.True(t, !ran(), "round %d: the message was run as a command; typing it gave %v", i, err)
		since = endOfLog(t, m, c.ID)
		must.Do(t, m.Input(ctx, c.ID, chat.Input{Keys: []string{"ctrl-c"}})) // what the agent did not read
		promptAfter(t, m, c.ID, since, "^C")
	}
	t.Logf("%d of 12 were typed", met)
}
