//go:build former

package roottest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chatd/chatd/api"
	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/provision"
)

// formerEnv names the directory that test/former built.
const formerEnv = "CHATD_TEST_FORMER"

// TestUpgradeFromCommits starts chatd as it was at each commit that changed what is stored, makes a
// chat, and replaces that chatd by today's: the chat is awake with the same first process and the
// variables of its shell, its background run goes on, its schedule is there, and the state is of
// today's version. The former
// chatd then refuses the state, with a reason, and changes nothing.
func TestUpgradeFromCommits(t *testing.T) {
	needsRoot(t)
	dir := os.Getenv(formerEnv)
	found, err := filepath.Glob(filepath.Join(dir, "*", "chatd"))
	if must(t, err); dir == "" || len(found) == 0 {
		missing(t, "the programs of former commits: test/former DIR, and "+formerEnv+"=DIR")
	}
	for _, program := range found {
		t.Run(filepath.Base(filepath.Dir(program)), func(t *testing.T) {
			opt := options(t)
			leaveOrphansToInit(t)
			d := startFormer(t, opt, program)
			c := d.firstChat(t)
			typeLine(t, d, c, "MARK=kept; echo said-$MARK", "said-kept")
			_, err := d.AddSchedule(t.Context(), c.ID, chat.ScheduleSpec{Every: chat.Duration(30 * time.Minute), Command: "true"})
			must(t, err)
			bg, err := d.StartRun(t.Context(), c.ID, chat.RunSpec{
				Command: "until [ -e go ]; do sleep .1; done; echo over", Timeout: chat.Duration(time.Minute)})
			must(t, err)
			first := firstProcess(t, c)
			d.kill()
			checkUpgraded(t, opt, c, first, bg.ID)
			checkDowngrade(t, opt, program)
			d = startDaemon(t, opt, "")
			if got, err := d.Get(t.Context(), c.ID); err != nil || !got.Awake {
				t.Errorf("after the refused downgrade: %+v, %v", got, err)
			}
			must(t, d.Reap(t.Context(), c.ID))
			gone(t, opt, c)
		})
	}
}

// startFormer starts a former chatd, which has no readiness that this client knows.
func startFormer(t *testing.T, opt provision.Options, program string) *daemon {
	t.Helper()
	old := opt
	old.Shim = filepath.Join(filepath.Dir(program), "chatd-shim")
	config := configFile(t, old)
	log, err := os.OpenFile(filepath.Join(filepath.Dir(config), "former.log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	must(t, err)
	defer log.Close()
	d := &daemon{cmd: exec.Command(program, "serve", "--config", config), log: log.Name()}
	d.cmd.Stdout, d.cmd.Stderr = log, log
	must(t, d.cmd.Start())
	t.Cleanup(d.kill)
	d.Client = api.NewClient(api.ClientOptions{Socket: filepath.Join(opt.Run, "chatd.sock")})
	return d
}

func (d *daemon) firstChat(t *testing.T) (c chat.Chat) {
	t.Helper()
	var err error
	if !comes(func() bool {
		c, _, err = d.Create(t.Context(), chat.Spec{ExternalID: "former"})
		return err == nil || d.isOver()
	}) || err != nil {
		b, _ := os.ReadFile(d.log)
		t.Fatalf("the former chatd makes no chat: %v; its log:\n%s", err, b)
	}
	return c
}

// typeLine types a line and waits for what the screen then shows.
func typeLine(t *testing.T, d *daemon, c chat.Chat, line, want string) {
	t.Helper()
	must(t, d.Input(t.Context(), c.ID, chat.Input{Text: line, Enter: true}))
	var s chat.Screen
	var err error
	if !comes(func() bool {
		s, err = d.Screen(t.Context(), c.ID)
		return err == nil && strings.Contains(s.Text, want)
	}) {
		t.Fatalf("the screen does not show %q: %q, %v", want, s.Text, err)
	}
}

func checkUpgraded(t *testing.T, opt provision.Options, c chat.Chat, first int, bg string) {
	t.Helper()
	d := startDaemon(t, opt, "")
	defer d.kill()
	got, err := d.Get(t.Context(), c.ID)
	if err != nil || !got.Awake || got.UID != c.UID || firstProcess(t, got) != first {
		b, _ := os.ReadFile(d.log)
		t.Errorf("after the upgrade: awake %v, uid %d, %v, shell %d, was %d; its log:\n%s",
			got.Awake, got.UID, err, firstProcess(t, got), first, b)
	}
	typeLine(t, d, c, "echo still-$MARK", "still-kept")
	run, err := d.Client.Run(t.Context(), c.ID, chat.RunSpec{Command: "touch go; id -u"})
	if err != nil || run.Stdout != fmt.Sprintln(c.UID) {
		t.Errorf("a run: %+v, %v", run, err)
	}
	var kept chat.Run
	if !comes(func() bool {
		kept, err = d.ShowRun(t.Context(), c.ID, bg)
		return err != nil || kept.State != chat.RunRunning
	}) || err != nil || kept.Result == nil || kept.Result.Exit != 0 {
		t.Errorf("the background run: %+v, %v", kept, err)
	}
	if out, err := d.ReadRun(t.Context(), c.ID, bg, ""); err != nil || !strings.Contains(fmt.Sprint(out), "over") {
		t.Errorf("its output: %+v, %v", out, err)
	}
	if all, err := d.Schedules(t.Context(), c.ID); err != nil || len(all.Schedules) != 1 {
		t.Errorf("schedules: %+v, %v", all, err)
	}
	log := chatdAnswers(t, "audit", "--state", opt.State)
	if !strings.Contains(log, "migrate done by chatd from=1 to=2") {
		t.Errorf("the audit log says nothing of the migration:\n%s", log)
	}
}

func checkDowngrade(t *testing.T, opt provision.Options, program string) {
	t.Helper()
	db := filepath.Join(opt.State, "chatd.db")
	before, err := os.ReadFile(db)
	must(t, err)
	d := startFormer(t, opt, program)
	if !comes(d.isOver) {
		t.Fatal("the former chatd goes on with the state of a later one")
	}
	code := d.ended(t)
	b, err := os.ReadFile(d.log)
	after, rerr := os.ReadFile(db)
	must(t, errors.Join(err, rerr))
	if code != 69 || !strings.Contains(string(b), `its format is "2", this chatd reads 1`) {
		t.Errorf("the former chatd ends with %d: %s", code, b)
	}
	if string(before) != string(after) {
		t.Error("the former chatd changed the database")
	}
}
