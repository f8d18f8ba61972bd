package roottest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/client"
	"github.com/chatd/chatd/provision"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// The rules of TestEnforcerKilledAtEveryStep, between which it reloads. Both deny .env, which the
// enforcer alone keeps where it comes later, and note, which has a mount from the start.
const (
	killedRules = `access: {useDefaults: false, deny: ["~/note", "~/many/*", "**/.env"]}`
	otherRules  = `access: {useDefaults: false, deny: ["~/note", "~/other", "**/.env"]}`
)

// TestEnforcerKilledAtEveryStep kills the enforcer's worker, its holder, or both at each step of
// create, wake, run, reload, sleep and reap, and at each step of its own. The call succeeds, or its
// error has a kind; asked again it succeeds, and the enforcer is there again. Another chat tries
// meanwhile to open what is denied; it keeps its session and its runs.
func TestEnforcerKilledAtEveryStep(t *testing.T) {
	k := newEnforcerKills(t)
	root := descriptorsOf(t, k.cmd.Process.Pid)
	seen := map[string]bool{} // the enforcer's points are met at every verb, most at wake and reload
	turn := 0                 // where time is short some points are taken
	for _, v := range k.verbs() {
		t.Run(v.name, func(t *testing.T) {
			count := k.witness.count(t, k.Client, v.name)
			points := slices.DeleteFunc(k.points(t, v), func(p killedPoint) bool {
				return p.of == "enforcer" && seen[p.name] && v.name != "wake" && v.name != "reload"
			})
			for _, p := range points {
				seen[p.name] = true
			}
			for i, p := range points {
				if testing.Short() && (i+turn)%(len(points)/3+1) != 0 {
					continue
				}
				turn++
				for i, victims := range p.victims() {
					if testing.Short() && i != turn%len(p.victims()) {
						continue
					}
					t.Run(p.name+"/"+victims.name, func(t *testing.T) {
						k.kill(t, v, p, victims.pids)
					})
				}
			}
			count()
		})
	}
	must.Do(t, k.Reap(t.Context(), k.subject.ID))
	gone(t, k.opt, k.subject)
	if !comes(func() bool { return descriptorsOf(t, k.cmd.Process.Pid) <= root }) {
		now := descriptorsOf(t, k.cmd.Process.Pid)
		t.Errorf("chatd-root had %d descriptors and has %d", root, now)
	}
	k.witness.reaped(t, k)
}

// enforcerKills is a daemon whose enforcer is killed again and again.
type enforcerKills struct {
	*daemon
	opt     provision.Options
	rules   string
	orders  map[string]failpoints // to chatd-root and to the enforcer
	subject chat.Chat
	witness *witness
	made    int
}

func newEnforcerKills(t *testing.T) *enforcerKills {
	t.Helper()
	opt, config, rules := ruledConfig(t)
	must.Do(t, os.WriteFile(rules, []byte(killedRules), 0o600))
	k := &enforcerKills{opt: opt, rules: rules, orders: map[string]failpoints{
		"root":     failpoints(filepath.Dir(opt.State)),
		"enforcer": failpoints(filepath.Join(opt.Run, "keeper")),
	}}
	k.daemon = startDaemonOf(t, opt, config, string(k.orders["root"]))
	k.witness = newWitness(t, k)
	groupsHeld(t, opt)
	until(t, "chatd watches the witness's sockets", k.watchesSockets) // by files that stay open
	k.subject = k.ruled(t, "subject")
	return k
}

// watchesSockets reports whether chatd-root has the two files by which it counts sockets: its own
// and the witness's.
func (k *enforcerKills) watchesSockets() bool {
	open, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", k.cmd.Process.Pid))
	return len(slices.DeleteFunc(open, func(fd string) bool {
		to, _ := os.Readlink(fd)
		return !strings.HasSuffix(to, "/net/sockstat")
	})) > 1
}

// ruled makes a chat that is asleep, with files that rules deny. Its shell tries to read them
// before anything else can be typed.
func (k *enforcerKills) ruled(t *testing.T, external string) chat.Chat {
	t.Helper()
	spec := chat.Spec{ExternalID: external, Profile: "ruled", Awake: new(false)}
	c := must.First(k.Create(t.Context(), spec))(t)
	for _, name := range []string{"note", "many/f", "other", "w/.env"} {
		putFile(t, c, name, secret)
	}
	putFile(t, c, "open", "open\n")
	putFile(t, c, "leak", "")
	putFile(t, c, "try.sh", tryScript)
	for _, name := range []string{".bashrc", ".bash_profile"} {
		putFile(t, c, name, "bash ~/try.sh > leak 2>&1")
	}
	return c
}

// tryScript prints the files that it can read. It starts no program, because without an enforcer
// its open might hang.
const tryScript = `for f in note w/.env open; do x=; IFS= read -r x < "$f"; echo "$x"; done`

// killedVerb is one thing that a caller does.
type killedVerb struct {
	name string
	// ready brings the chat to where the verb begins.
	ready func(*testing.T)
	// do is the verb; asked a second time it must succeed.
	do func(*testing.T) error
	// check looks at what came of it.
	check func(*testing.T)
}

func (k *enforcerKills) verbs() []killedVerb {
	made := chat.Chat{}
	awake := func(t *testing.T) { t.Helper(); must.Get(k.Wake(t.Context(), k.subject.ID))(t) }
	none := func(*testing.T) {}
	return []killedVerb{
		{"wake", func(t *testing.T) {
			must.Get(k.Sleep(t.Context(), k.subject.ID))(t)
		}, func(t *testing.T) error {
			return expect.Err(k.Wake(t.Context(), k.subject.ID))
		}, k.awakeAndShut},
		{"reload", awake, k.reload, k.awakeAndShut},
		{"worker", awake, func(t *testing.T) error {
			must.Do(t, ignoreEnded(unix.Kill(k.process(t, "worker"), unix.SIGKILL)))
			return k.try(t)
		}, k.awakeAndShut},
		{"holder", awake, func(t *testing.T) error {
			must.Do(t, ignoreEnded(unix.Kill(k.process(t, "holder"), unix.SIGKILL)))
			return k.try(t)
		}, k.awakeAndShut},
		{"create", func(*testing.T) { k.made++ }, func(t *testing.T) (err error) {
			spec := chat.Spec{ExternalID: fmt.Sprint("made ", k.made), Profile: "ruled", Awake: new(false)}
			made, _, err = k.Create(t.Context(), spec)
			return err
		}, func(t *testing.T) {
			whole(t, k.opt, made)
			must.Do(t, k.Reap(t.Context(), made.ID))
			gone(t, k.opt, made)
		}},
		{"run", awake, func(t *testing.T) error { return k.try(t) }, k.awakeAndShut},
		{"sleep", awake, func(t *testing.T) error {
			return expect.Err(k.Sleep(t.Context(), k.subject.ID))
		}, none},
		{"reap", func(t *testing.T) {
			k.made++
			made = k.ruled(t, fmt.Sprint("made ", k.made))
			must.Get(k.Wake(t.Context(), made.ID))(t)
		}, func(t *testing.T) error {
			if err := k.Reap(t.Context(), made.ID); !errors.Is(err, chat.ErrNotFound) {
				return err
			}
			return nil
		}, func(t *testing.T) { gone(t, k.opt, made) }},
	}
}

func ignoreEnded(err error) error {
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	return err
}

// try has the subject read what is denied and what is open. An open about which the enforcer was
// asked when it was killed is refused, also one of the shell that tries.
func (k *enforcerKills) try(t *testing.T) error {
	t.Helper()
	r, err := k.Run(t.Context(), k.subject.ID, chat.RunSpec{Command: "bash try.sh"})
	expect.True(t, !strings.Contains(r.Stdout+r.Stderr, secret), "a run reads %+v", r)
	if err == nil && r.Stdout != "\n\nopen\n" {
		err = fmt.Errorf("an open was refused: %+v: %w", r, chat.ErrBusy)
	}
	return err
}

// reload brings the sessions to the other rules.
func (k *enforcerKills) reload(t *testing.T) error {
	t.Helper()
	text := must.Get(os.ReadFile(k.rules))(t)
	next := map[string]string{killedRules: otherRules, otherRules: killedRules}[string(text)]
	outcomes := func() int {
		log := must.Get(os.ReadFile(k.log))(t)
		must.True(t, !strings.Contains(string(log), "could not be brought"),
			"a reload ended a session: %s", log)
		return strings.Count(string(log), "the file rules were read again") +
			strings.Count(string(log), "reload failed")
	}
	before := outcomes()
	must.Do(t, os.WriteFile(k.rules, []byte(next), 0o600))
	must.Do(t, k.cmd.Process.Signal(syscall.SIGHUP))
	until(t, "the rules are read again", func() bool { return outcomes() > before })
	return nil
}

// awakeAndShut looks that the subject has a session in which nothing that is denied was read.
func (k *enforcerKills) awakeAndShut(t *testing.T) {
	t.Helper()
	c, err := k.Get(t.Context(), k.subject.ID)
	expect.True(t, err == nil && c.Awake, "the chat is %+v, %v", c, err)
	expect.NoError(t, k.try(t))
	leak, err := os.ReadFile(filepath.Join(k.subject.Home, "leak"))
	expect.True(t, err == nil && len(leak) != 0 && !strings.Contains(string(leak), secret),
		"the shell of the new session read %q, %v", leak, err)
}

// process is the holder or the worker of the enforcer, once there are both.
func (k *enforcerKills) process(t *testing.T, which string) (pid int) {
	t.Helper()
	until(t, "a holder and a worker", func() bool {
		found := map[string]int{}
		args := "^[^ ]*chatd-enforce --dir " + k.opt.Run + "/keeper"
		out, _ := exec.Command("pgrep", "-a", "-f", args).Output()
		for line := range strings.Lines(string(out)) {
			name := "holder"
			if strings.Contains(line, " --worker") {
				name = "worker"
			}
			found[name], _ = strconv.Atoi(strings.Fields(line)[0])
		}
		pid = found[which]
		return len(found) == 2
	})
	return pid
}

// killedPoint is where the enforcer is killed: a step of chatd-root, or of its own.
type killedPoint struct {
	name string
	of   string // which process meets it
	k    *enforcerKills
	t    *testing.T
}

// points are those that are met while the verb is done.
func (k *enforcerKills) points(t *testing.T, v killedVerb) (all []killedPoint) {
	t.Helper()
	v.ready(t)
	var own []string
	root := k.orders["root"].met(t, func() {
		own = k.orders["enforcer"].met(t, func() {
			must.Do(t, v.do(t))
			k.witness.later(t)
		})
	})
	v.check(t)
	for of, names := range map[string][]string{"root": root, "enforcer": own} {
		for _, name := range names {
			alone := of == "root" && (v.name == "worker" || v.name == "holder")
			last := strings.HasPrefix(name, "holder.") || name == "worker.inherits"
			if alone || last && testing.Short() {
				continue // last: the other process has ended
			}
			all = append(all, killedPoint{name, of, k, t})
		}
	}
	slices.SortFunc(all, func(a, b killedPoint) int {
		return strings.Compare(a.of+a.name, b.of+b.name)
	})
	return all
}

// victims are the processes to kill: pids finds them when the order is given.
type victims struct {
	name string
	pids func(*testing.T) []int
}

func (p killedPoint) victims() []victims {
	process := func(name string) func(*testing.T) []int {
		return func(t *testing.T) []int { return []int{p.k.process(t, name)} }
	}
	worker, self := process("worker"), []int{}
	if p.of == "enforcer" {
		self = []int{0} // the one that is there by then
		worker = func(*testing.T) []int { return self }
	}
	both := func(t *testing.T) []int {
		return append([]int{p.k.process(t, "holder"), p.k.process(t, "worker")}, self...)
	}
	some := []victims{{"worker", worker}, {"holder", process("holder")}}
	if testing.Short() { // TestRulesEnforcerGone kills both
		return some
	}
	return append(some, victims{"both", both})
}

// kill has the victims killed at the point while the verb is done, and looks what came of it.
func (k *enforcerKills) kill(
	t *testing.T, v killedVerb, p killedPoint, pids func(*testing.T) []int,
) {
	v.ready(t)
	stay := []chat.Chat{k.witness.chat}
	if slices.Contains([]string{"run", "reload", "worker", "holder"}, v.name) {
		stay = append(stay, k.subject)
	}
	sessions := make([]string, len(stay))
	for i, c := range stay {
		sessions[i] = sessionInit(t, c)
	}
	orders := k.orders[p.of]
	k.caughtUp(t)
	orders.order(t, p.name, pids(t)...)
	if err := v.do(t); err != nil && !slices.ContainsFunc([]error{
		chat.ErrInvalid, chat.ErrDenied, chat.ErrNotFound, chat.ErrExists,
		chat.ErrWrongPhase, chat.ErrConflict, chat.ErrUnsupported, chat.ErrBusy,
	}, func(kind error) bool { return errors.Is(err, kind) }) {
		t.Errorf("the call fails by an error of no kind: %v", err)
	}
	k.witness.later(t)
	until(t, "the point is met", func() bool { return !orders.waits() })
	k.witness.later(t)
	expect.Is(t, v.do(t), nil, "asked again")
	v.check(t)
	k.process(t, "worker")
	k.witness.tries(t)
	for i, c := range stay {
		if now := sessionInit(t, c); now != sessions[i] {
			t.Errorf("the session of chat %s was %s and is %s", c.ID, sessions[i], now)
		}
	}
}

// caughtUp waits until the enforcer has no backlog of names: a session of which a worker is killed
// that has one ends, rightly.
func (k *enforcerKills) caughtUp(t *testing.T) {
	t.Helper()
	until(t, "the enforcer has looked at all names", func() bool {
		late := must.Get(filepath.Glob(filepath.Join(k.opt.Run, "keeper", "*.late")))(t)
		return len(late) == 0
	})
}

// witness is a chat that tries in a loop to open what is denied, and counts in a run.
type witness struct {
	chat chat.Chat
	n    int
}

// witnessScript opens nothing but what it tries. The pipe is what it waits with, so that it starts
// no program.
const witnessScript = `exec 6>loop/ticks 7>/dev/null 8>>loop/out 9<>loop/pipe
while :; do
	for f in note w/.env loop/n*/.env; do
		x=; IFS= read -r x < "$f"; [ -z "$x" ] || echo "$f: $x" >&8
	done 2>&7
	echo "............................" >&6
	read -t 0.002 -u 9
done
`

// countScript counts until it is told to stop, and opens nothing meanwhile.
const countScript = `exec 9<>loop/pipe
for ((i = 1; ; i++)); do
	echo $i
	[ ! -e loop/stop-$1 ] || break
	read -t 0.1 -u 9
done
echo end
`

func newWitness(t *testing.T, k *enforcerKills) *witness {
	t.Helper()
	w := &witness{chat: k.ruled(t, "witness")}
	putDir(t, w.chat, "loop")
	pipe := filepath.Join(w.chat.Home, "loop/pipe")
	must.Do(t, errors.Join(unix.Mkfifo(pipe, 0o600), os.Chown(pipe, int(w.chat.UID), int(w.chat.UID))))
	putFile(t, w.chat, "count.sh", countScript)
	putFile(t, w.chat, "watch.sh", witnessScript)
	must.Get(k.Wake(t.Context(), w.chat.ID))(t)
	must.Do(t, k.Input(t.Context(), w.chat.ID, chat.Input{Text: "bash watch.sh &", Enter: true}))
	ticks(t, w.chat, 1)
	return w
}

// later makes a file that is denied in the witness's home, where one was before.
func (w *witness) later(t *testing.T) {
	t.Helper()
	must.Do(t, os.RemoveAll(filepath.Join(w.chat.Home, fmt.Sprintf("loop/n%d", w.n))))
	w.n++
	putFile(t, w.chat, fmt.Sprintf("loop/n%d/.env", w.n), secret)
}

// tries waits until the witness has tried all again, and looks that it never read anything.
func (w *witness) tries(t *testing.T) {
	t.Helper()
	ticks(t, w.chat, 2)
	out := filepath.Join(w.chat.Home, "loop/out")
	if got, err := os.ReadFile(out); err != nil || len(got) > 0 {
		t.Errorf("the other chat read %q, %v", got, err)
		must.Do(t, os.Truncate(out, 0))
	}
}

// count starts a run of the witness. What it returns ends it, and looks that nothing of it is lost.
func (w *witness) count(t *testing.T, d *client.Client, name string) (end func()) {
	t.Helper()
	spec := chat.RunSpec{Command: "exec bash count.sh " + name, Timeout: chat.MaxTimeout}
	r, err := d.StartRun(t.Context(), w.chat.ID, spec)
	must.Do(t, err)
	return func() {
		t.Helper()
		putFile(t, w.chat, "loop/stop-"+name, "")
		until(t, "the run ends", func() bool {
			r, err = d.ShowRun(t.Context(), w.chat.ID, r.ID)
			must.Do(t, err)
			return r.State != chat.RunRunning
		})
		lines := strings.Split(strings.TrimSuffix(r.Result.Stdout, "\n"), "\n")
		for i, line := range lines {
			want := fmt.Sprint(i + 1)
			if i == len(lines)-1 {
				want = "end"
			}
			if line != want {
				t.Errorf("line %d of the run is %q of %+v", i+1, line, r)
				return
			}
		}
	}
}

// reaped takes the witness away.
func (w *witness) reaped(t *testing.T, k *enforcerKills) {
	t.Helper()
	must.Do(t, k.Reap(t.Context(), w.chat.ID))
	gone(t, k.opt, w.chat)
}
