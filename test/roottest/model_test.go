package roottest

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/provision"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// TestModel: random histories of calls, in which chatd's processes are killed at any moment, and a
// model of what the answers promise. After each call an independent checker compares the host with
// the model. CHATD_TEST_HISTORIES is how many; a failure prints the seed that repeats it.
func TestModel(t *testing.T) {
	rounds := "12"
	if testing.Short() {
		rounds = "15" // rapid makes a fifth of it then, and of half the length
	}
	if s := os.Getenv("CHATD_TEST_HISTORIES"); s != "" {
		rounds = s
	}
	for name, value := range map[string]string{
		"checks": rounds, "nofailfile": "true", "shrinktime": "30s",
	} {
		must.Do(t, flag.Set("rapid."+name, value))
	}
	h := &history{t: t, opt: options(t), given: map[uint32]chat.ID{}}
	h.config = configFile(t, h.opt, modelProfiles)
	h.daemon = startDaemonOf(t, h.opt, h.config, "")
	rapid.Check(t, func(rt *rapid.T) {
		h.chats, h.wrote = map[string]*expected{}, map[string]int{}
		defer h.reapAll()
		rt.Repeat(map[string]func(*rapid.T){
			"": h.compare, "create": h.create, "wake": h.wake, "sleep": h.sleep, "reap": h.reap,
			"write": h.write, "type": h.typed, "label": h.label, "limit": h.limit,
			"background": h.background, "freeze": h.freeze,
			"kill": h.kill, "cut off": h.cutOff, "cut off too": h.cutOff, // twice as often
		})
	})
	said := chatdAnswers(t, "audit", "--verify", "--state", h.opt.State)
	expect.True(t, strings.Contains(said, "lines hold"), "the audit log: %s", said)
	t.Logf("%d chats, %d calls, %d of them cut off by a kill", len(h.given), h.calls, h.cuts)
}

// modelNames are the profiles of histories.
var modelNames = []string{"default", "web", "ruled"}

// modelProfiles have each of chatd's processes in use.
const modelProfiles = `profiles:
  web:
    commands: ["*"]
    egress: ["198.51.100.7:443"]
  ruled:
    commands: ["*"]
    defaults: true
`

// history is what a model knows of one daemon, which is killed and started again.
type history struct {
	*daemon
	t      *testing.T
	opt    provision.Options
	config string
	chats  map[string]*expected // by external id
	wrote  map[string]int       // how often, by external id
	// given are the uids of all histories: none may come twice.
	given       map[uint32]chat.ID
	calls, cuts int
}

// conversations are the external ids of a history: few, so that calls meet the same chat.
var conversations = rapid.SampledFrom([]string{"one", "two", "$(three)", "vier\n4"})

// settled is how long the host may differ from the last answer: a process that begins a session, or
// ended, may be there for a moment.
const settled = longEnough

// compare is made after each call.
func (h *history) compare(rt *rapid.T) {
	all := make([]expected, 0, len(h.chats))
	for _, e := range h.chats {
		all = append(all, *e)
	}
	var said []string
	for end := time.Now().Add(settled); ; time.Sleep(20 * time.Millisecond) {
		said = differences(h.t, h.opt, all)
		if len(said) == 0 || time.Now().After(end) {
			break
		}
	}
	sure(rt, len(said) == 0, "the host differs:\n%s", strings.Join(said, "\n"))
}

// ctx bounds a call, so that one that waits for ever is a failure.
func (h *history) ctx() context.Context {
	h.calls++
	ctx, cancel := context.WithTimeout(h.t.Context(), longEnough)
	context.AfterFunc(ctx, cancel)
	return ctx
}

// sure fails a history with a message if ok is false.
func sure(rt *rapid.T, ok bool, format string, args ...any) {
	if !ok {
		rt.Fatalf(format, args...)
	}
}

// known chooses a chat that is there, and skips the call where there is none.
func (h *history) known(rt *rapid.T) *expected {
	names := slices.Sorted(maps.Keys(h.chats))
	if len(names) == 0 {
		rt.Skip("there is no chat")
	}
	return h.chats[rapid.SampledFrom(names).Draw(rt, "chat")]
}

func (h *history) create(rt *rapid.T) {
	spec := chat.Spec{ExternalID: conversations.Draw(rt, "external id"),
		Profile: rapid.SampledFrom(modelNames).Draw(rt, "profile")}
	awake := rapid.Bool().Draw(rt, "awake")
	spec.Awake = &awake
	ctx := h.ctx()
	h.created(rt, spec, func() (chat.Chat, bool, error) { return h.Create(ctx, spec) })
}

// created makes a chat by the call and takes its answer into the model.
func (h *history) created(
	rt *rapid.T, spec chat.Spec, call func() (chat.Chat, bool, error),
) {
	c, first, err := call()
	if e, ok := h.chats[spec.ExternalID]; ok && e.chat.Profile != spec.Profile {
		sure(rt, errors.Is(err, chat.ErrExists), "create of %+v with another profile: %v", e.chat, err)
		return
	}
	sure(rt, err == nil, "create %q: %v", spec.ExternalID, err)
	e, ok := h.chats[spec.ExternalID]
	switch {
	case ok && (first && !e.unsure || c.ID != e.chat.ID || c.UID != e.chat.UID && !e.unsure):
		rt.Fatalf("created again: %+v, and it was %+v", c, e.chat)
	case !ok && !first:
		rt.Fatalf("found %+v, which nobody made", c)
	case first && h.given[c.UID] != "":
		rt.Fatalf("uid %d was chat %s before", c.UID, h.given[c.UID])
	case !ok:
		e = &expected{files: map[string]string{}}
		h.chats[spec.ExternalID] = e
	}
	if want := *spec.Awake || ok && e.chat.Awake; !e.unsure && c.Awake != want {
		rt.Fatalf("create %+v answers awake: %t, want %t", spec, c.Awake, want)
	}
	h.given[c.UID] = c.ID
	e.chat, e.unsure = c, false
}

func (h *history) wake(rt *rapid.T) {
	e := h.known(rt)
	h.answered(rt, e, true)(h.Wake(h.ctx(), e.chat.ID))
}

func (h *history) sleep(rt *rapid.T) {
	e := h.known(rt)
	h.answered(rt, e, false)(h.Sleep(h.ctx(), e.chat.ID))
}

// answered takes the answer of a call after which the chat is awake or not.
func (h *history) answered(rt *rapid.T, e *expected, awake bool) func(chat.Chat, error) {
	return func(c chat.Chat, err error) {
		sure(rt, err == nil && c.Awake == awake && c.UID == e.chat.UID && c.Profile == e.chat.Profile,
			"%+v, %v, and it was %+v; want awake: %t", c, err, e.chat, awake)
		sure(rt, maps.Equal(c.Labels, e.chat.Labels),
			"the labels are %v, and %v were acknowledged", c.Labels, e.chat.Labels)
		e.chat.Awake = awake
	}
}

func (h *history) reap(rt *rapid.T) {
	e := h.known(rt)
	ctx := h.ctx()
	if err := h.Reap(ctx, e.chat.ID); err != nil {
		rt.Fatalf("reap: %v", err)
	}
	if _, err := h.Get(ctx, e.chat.ID); !errors.Is(err, chat.ErrNotFound) {
		rt.Fatalf("it is reaped, and a get says %v", err)
	}
	delete(h.chats, e.chat.ExternalID)
}

// content is a new file of a chat, and the command that writes it whole.
func (h *history) content(e *expected) (name, text, command string) {
	h.wrote[e.chat.ExternalID]++
	n := h.wrote[e.chat.ExternalID]
	name, text = fmt.Sprintf("file%d", n%3), fmt.Sprintf("%d of %s\n", n, e.chat.ID)
	return name, text, fmt.Sprintf("printf '%%s' '%s' > new && mv new %s && cat %[2]s", text, name)
}

// write lets a run write a file. A run wakes no chat, and leaves none awake.
func (h *history) write(rt *rapid.T) {
	e := h.known(rt)
	name, text, command := h.content(e)
	ctx := h.ctx()
	r, err := h.Run(ctx, e.chat.ID, chat.RunSpec{Command: command})
	sure(rt, err == nil && r.Exit == 0 && r.Stdout == text, "a run that writes: %+v, %v", r, err)
	e.files[name] = text
	h.refresh(rt, ctx, e)
}

// refresh takes from an answer whether the chat is awake: the checker compares it with the host.
func (h *history) refresh(rt *rapid.T, ctx context.Context, e *expected) {
	c, err := h.Get(ctx, e.chat.ID)
	sure(rt, err == nil && c.UID == e.chat.UID, "%+v, %v, and it was %+v", c, err, e.chat)
	e.chat.Awake = c.Awake
}

// typed wakes the chat by a line that its shell runs once.
func (h *history) typed(rt *rapid.T) {
	e := h.known(rt)
	name, text, _ := h.content(e)
	ctx := h.ctx()
	line := fmt.Sprintf("echo '%s' > new && mv new %s", strings.TrimSpace(text), name)
	typed, err := h.InputWait(ctx, e.chat.ID, chat.Input{Text: line, Enter: true,
		Wait: &chat.Wait{Until: chat.UntilPrompt}})
	sure(rt, err == nil, "input: %+v, %v", typed, err)
	e.files[name], e.chat.Awake = text, true
}

func (h *history) label(rt *rapid.T) {
	e := h.known(rt)
	value := rapid.SampledFrom([]string{"a", "b", "ü"}).Draw(rt, "label")
	c, err := h.Patch(h.ctx(), e.chat.ID, chat.Patch{Labels: map[string]*string{"model": &value}})
	sure(rt, err == nil && c.Labels["model"] == value, "patch: %+v, %v", c.Labels, err)
	e.chat.Labels = c.Labels
}

// limit changes a limit, which the checker reads in the cgroups of a chat that is awake.
func (h *history) limit(rt *rapid.T) {
	e := h.known(rt)
	n := rapid.Uint64Range(60, 200).Draw(rt, "pids_max")
	value := json.RawMessage(fmt.Sprint(n))
	c, err := h.Patch(h.ctx(), e.chat.ID, chat.Patch{
		Limits: map[string]*json.RawMessage{"pids_max": &value},
	})
	sure(rt, err == nil && c.Limits.PidsMax == n, "patch: %+v, %v", c.Limits, err)
	e.chat.Limits = c.Limits
}

// background begins a run in the background and ends it.
func (h *history) background(rt *rapid.T) {
	e := h.known(rt)
	ctx := h.ctx()
	r, err := h.StartRun(ctx, e.chat.ID, chat.RunSpec{Command: "sleep 1000 & sleep 1000"})
	if err == nil {
		err = h.EndRun(ctx, e.chat.ID, r.ID)
	}
	sure(rt, err == nil, "a background run: %v", err)
	h.refresh(rt, ctx, e)
}

// victims are processes of a daemon; the daemon itself is one for which another is started.
func (h *history) victims(which string) []string {
	switch which {
	case "front":
		return []string{fmt.Sprint(frontOf(h.t, h.cmd.Process.Pid))}
	case "egress":
		return egressesOf(h.opt)
	case "enforcer":
		return enforcersOf(h.opt)
	}
	return []string{fmt.Sprint(h.cmd.Process.Pid)}
}

var mortals = rapid.SampledFrom([]string{"root", "front", "egress", "enforcer"})

// kill ends a process between two calls.
func (h *history) kill(rt *rapid.T) {
	which := mortals.Draw(rt, "process")
	signalAll(h.victims(which), syscall.SIGKILL)
	h.again(which)
}

// again waits until a daemon answers.
func (h *history) again(which string) {
	if which == "root" {
		h.daemon.kill()
		h.daemon = startDaemonOf(h.t, h.opt, h.config, "")
		return
	}
	h.waitUp(h.t)
}

// cutOff kills a process within a call, and makes the call again with the next.
func (h *history) cutOff(rt *rapid.T) {
	which := mortals.Draw(rt, "process")
	verb := rapid.SampledFrom([]string{"create", "wake", "sleep", "reap", "write"}).Draw(rt, "verb")
	after := time.Duration(rapid.IntRange(0, 60).Draw(rt, "milliseconds")) * time.Millisecond
	external := conversations.Draw(rt, "external id")
	e, ok := h.chats[external]
	if ok == (verb == "create") {
		rt.Skip("there is no such chat, or one already")
	}
	spec := chat.Spec{ExternalID: external, Profile: "default", Awake: new(false)}
	var name, text, command string
	if ok {
		name, text, command = h.content(e)
	}
	call := func(ctx context.Context) error {
		switch verb {
		case "create":
			return expect.Err(h.Create(ctx, spec))
		case "wake":
			return expect.Err(h.Wake(ctx, e.chat.ID))
		case "sleep":
			return expect.Err(h.Sleep(ctx, e.chat.ID))
		case "write":
			return expect.Err(h.Run(ctx, e.chat.ID, chat.RunSpec{Command: command}))
		}
		return h.Reap(ctx, e.chat.ID)
	}
	cut := h.cutCall(which, after, call)
	h.again(which)
	if verb == "write" && (cut == nil || h.holds(e, name, text)) {
		e.files[name] = text
	}
	h.repeat(rt, verb, spec, e, cut)
}

// holds reports whether a file of the chat has the text.
func (h *history) holds(e *expected, name, text string) bool {
	b, err := os.ReadFile(e.chat.Home + "/" + name)
	return err == nil && string(b) == text
}

// cutCall makes a call and kills meanwhile; the error is the call's.
func (h *history) cutCall(
	which string, after time.Duration, call func(context.Context) error,
) error {
	ctx := h.ctx()
	victims, end := h.victims(which), make(chan error, 1)
	go func() { end <- call(ctx) }()
	time.Sleep(after)
	signalAll(victims, syscall.SIGKILL)
	err := <-end
	if err != nil {
		h.cuts++
	}
	return err
}

// repeat makes a call that was cut off again: then there is one outcome, and what was acknowledged
// before holds.
func (h *history) repeat(rt *rapid.T, verb string, spec chat.Spec, e *expected, cut error) {
	ctx := h.ctx()
	switch verb {
	case "create":
		h.created(rt, spec, func() (chat.Chat, bool, error) {
			c, first, err := h.Create(ctx, spec)
			if err == nil && cut == nil && first {
				rt.Fatalf("%+v was created, and acknowledged before", c)
			}
			return c, true, err
		})
	case "wake":
		h.answered(rt, e, true)(h.Wake(ctx, e.chat.ID))
	case "sleep":
		h.answered(rt, e, false)(h.Sleep(ctx, e.chat.ID))
	case "write":
		h.refresh(rt, ctx, e)
	case "reap":
		if err := h.Reap(ctx, e.chat.ID); err != nil && !errors.Is(err, chat.ErrNotFound) {
			rt.Fatalf("reap again: %v", err)
		}
		delete(h.chats, spec.ExternalID)
	}
}

// reapAll ends a history: nothing of it is left, but what a killed enforcer knew, which is for the
// next one to forget.
func (h *history) reapAll() {
	page := must.Get(h.List(h.t.Context(), chat.Filter{Limit: 1000}))(h.t)
	for _, c := range page.Chats {
		must.Do(h.t, h.Reap(h.t.Context(), c.ID))
	}
	for _, c := range page.Chats {
		var left []string
		expect.True(h.t, comes(func() bool { left = h.left(c); return len(left) == 0 }),
			"%s left behind %q", c.ExternalID, left)
	}
}

// left are the traces of a chat that was reaped. An enforcer forgets it within ten seconds, as in
// [forgotten]; where none runs, its records are not counted.
func (h *history) left(c chat.Chat) []string {
	left := traces(h.t, h.opt, c)
	if len(enforcersOf(h.opt)) > 0 {
		return left
	}
	records := "file " + filepath.Join(h.opt.Run, "keeper/sessions")
	return slices.DeleteFunc(left, func(t string) bool { return strings.HasPrefix(t, records) })
}

// TestIndependentSees: the checker of the host finds what is not as it is expected.
func TestIndependentSees(t *testing.T) {
	opt := options(t)
	m := open(t, opt)
	c := create(t, m, "seen", "default")
	other := create(t, m, "other", "web")
	all := []expected{{chat: c}, {chat: other}}
	var whole []string
	must.True(t, comes(func() bool { whole = differences(t, opt, all); return len(whole) == 0 }),
		"of a whole host it says %q", whole)
	shadow := c
	shadow.Profile, shadow.Awake = "web", false
	shadow.Limits.PidsMax++
	file := c.Home + "/file"
	must.Do(t, os.WriteFile(file, []byte("old"), 0o600))
	must.Do(t, os.Chmod(other.Home, 0o755))
	stray := exec.Command("setpriv", "--reuid", fmt.Sprint(other.UID), "sleep", "1000")
	must.Do(t, stray.Start())
	defer func() { _ = stray.Process.Kill(); _ = stray.Wait() }()
	until(t, "the stray process has the uid", func() bool {
		return slices.Contains(pidsOf(other.UID), stray.Process.Pid)
	})
	said := strings.Join(differences(t, opt, []expected{
		{chat: shadow, files: map[string]string{"file": "new"}}, {chat: other},
	}), "\n")
	for _, want := range []string{
		"seen: awake is false", "seen: no rule of iptables-save",
		fmt.Sprint("want ", shadow.Limits.PidsMax), "file holds \"old\"", "is 40755 of",
		"has no \"NoNewPrivs", "host's net namespace", "is in other cgroups",
	} {
		expect.True(t, strings.Contains(said, want), "it does not see %q", want)
	}
	said = strings.Join(differences(t, opt, []expected{{chat: other}}), "\n")
	for _, want := range []string{
		"which no chat has", "cgroups of no chat", "the account of no chat", "belongs to uid",
	} {
		expect.True(t, strings.Contains(said, want),
			"of a chat that nobody knows it does not see %q:\n%s", want, said)
	}
	must.Do(t, os.Chmod(other.Home, 0o700))
}

// freeze is an operator's: it holds over the kill of a process, refuses what would use the chat,
// and ends with the thaw.
func (h *history) freeze(rt *rapid.T) {
	e := h.known(rt)
	if !e.chat.Awake {
		rt.Skip("it is asleep")
	}
	ctx := h.ctx()
	h.answered(rt, e, true)(h.Freeze(ctx, e.chat.ID))
	h.kill(rt)
	h.compare(rt)
	c, err := h.Get(ctx, e.chat.ID)
	sure(rt, err == nil && c.Frozen == chat.FrozenUntilThawed, "it is frozen %q, %v", c.Frozen, err)
	_, err = h.Run(ctx, e.chat.ID, chat.RunSpec{Command: "true"})
	sure(rt, errors.Is(err, chat.ErrBusy), "a run in it: %v", err)
	h.answered(rt, e, true)(h.Thaw(ctx, e.chat.ID))
	if c, err := h.Get(ctx, e.chat.ID); err != nil || c.Frozen != "" {
		rt.Fatalf("thawed, it is frozen %q, %v", c.Frozen, err)
	}
}
