package roottest

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"filippo.io/age"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/provision"
)

// keepsArchives gives a daemon a directory for archives.
func keepsArchives(opt provision.Options) provision.Options {
	opt.Archives = &provision.ArchiveOptions{
		Dir: filepath.Join(filepath.Dir(opt.State), "archives"), Program: programs.archive,
	}
	return opt
}

// withKeys encrypts the archives of opt to a new key, which root has or has not.
func withKeys(t *testing.T, opt provision.Options, have bool) *age.X25519Identity {
	t.Helper()
	key, err := age.GenerateX25519Identity()
	must(t, err)
	dir := filepath.Join(filepath.Dir(opt.State), "keys")
	must(t, os.MkdirAll(dir, 0o700))
	opt.Archives.Recipients = filepath.Join(dir, "recipients")
	must(t, os.WriteFile(opt.Archives.Recipients, []byte(key.Recipient().String()+"\n"), 0o600))
	if have {
		opt.Archives.Identities = filepath.Join(dir, "identities")
		must(t, os.WriteFile(opt.Archives.Identities, []byte(key.String()+"\n"), 0o600))
	}
	return key
}

// furnishHome puts what is hard to keep into the chat's home, and returns a command that tells it.
func furnishHome(t *testing.T, m *manager, c chat.Chat) (tell string) {
	t.Helper()
	run(t, m, c.ID, `cd && mkdir -p d/e && echo one >d/f && ln d/f d/e/again && ln -s ../f d/e/link &&
		printf two >"$(printf 'new\nline')" && truncate -s 3G hole && echo end >>hole &&
		mkfifo p && chmod 0 d/f && mkdir closed && echo x >closed/x && chmod 0 closed &&
		setfattr -n user.note -v kept d/e 2>/dev/null; touch -d @12345.678 d; echo said`)
	return `cd && chmod 700 closed && find . -path './.local/state*' -prune -o -printf '%P %y %m %s %l %n %T@\n' |
		grep -v '^ ' | sort && chmod 600 d/f && cat d/f closed/x new* && tail -c 4 hole &&
		chmod 0 closed d/f`
}

// archiveChat archives a chat, and fails the test where that fails.
func archiveChat(t *testing.T, m *manager, c chat.Chat, keep bool) chat.Archive {
	t.Helper()
	a, err := m.Archive(operator(t.Context()), c.ID, chat.ToArchive{Keep: keep})
	must(t, err)
	return a
}

// TestArchive: an archived chat is gone, and comes back with its home, record, log and schedules
// under another uid; in clear and encrypted.
func TestArchive(t *testing.T) {
	for _, encrypted := range []bool{false, true} {
		t.Run(map[bool]string{false: "clear", true: "encrypted"}[encrypted], func(t *testing.T) {
			opt := keepsArchives(options(t))
			if encrypted {
				withKeys(t, opt, true)
			}
			archiveAndBack(t, open(t, opt))
		})
	}
}

func archiveAndBack(t *testing.T, m *manager) {
	ctx := operator(t.Context())
	c, _, err := m.Create(ctx, chat.Spec{
		ExternalID: "telegram:1", Profile: "web", Labels: map[string]string{"team": "ops"},
		Env: map[string]string{"GREETING": "hello"},
	})
	must(t, err)
	tell := furnishHome(t, m, c)
	before := run(t, m, c.ID, tell)
	must(t, m.Input(ctx, c.ID, chat.Input{Text: "echo in the log", Enter: true}))
	until(t, "the log has it", func() bool { return strings.Contains(logOf(t, m, c), "in the log") })
	sched, err := m.PutSchedule(ctx, c.ID, chat.NewSchedule{
		Spec: chat.ScheduleSpec{Every: chat.Duration(time.Hour), Command: "true"}, Next: time.Now().Add(time.Hour),
	})
	must(t, err)

	a := archiveChat(t, m, c, false)
	if _, err := m.Get(ctx, c.ID); !errors.Is(err, chat.ErrNotFound) {
		t.Errorf("the chat is still there: %v", err)
	}
	if _, err := os.Lstat(c.Home); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("its home is still there: %v", err)
	}
	all, err := m.Archives(ctx, chat.ArchiveFilter{Chat: c.ID})
	must(t, err)
	if len(all) != 1 || all[0].Name != a.Name || all[0].Bytes < 4 || all[0].ExternalID != "telegram:1" {
		t.Errorf("the list has %+v", all)
	}
	_, err = m.VerifyArchive(ctx, a.Name)
	must(t, err)

	back, err := m.Unarchive(ctx, a.Name)
	must(t, err)
	if back.ID != c.ID || back.UID == c.UID || back.Labels["team"] != "ops" || back.Awake ||
		back.Env["GREETING"] != "hello" || back.Profile != "web" || !back.CreatedAt.Equal(c.CreatedAt) {
		t.Errorf("it came back as %+v, was %+v", back, c)
	}
	after := run(t, m, c.ID, tell)
	if after.Stdout != before.Stdout || before.Exit != 0 {
		t.Errorf("its home has\n%s\nit had\n%s%s", after.Stdout, before.Stdout, before.Stderr)
	}
	if log := logOf(t, m, c); !strings.Contains(log, "in the log") {
		t.Errorf("its log has %q", log)
	}
	got, err := m.KeptSchedule(ctx, c.ID, sched.ID)
	must(t, err)
	if got.Spec.Command != "true" {
		t.Errorf("its schedule is %+v", got)
	}
	if _, err := m.Unarchive(ctx, a.Name); !errors.Is(err, chat.ErrExists) {
		t.Errorf("unarchived twice: %v", err)
	}
	must(t, m.RemoveArchive(ctx, a.Name))
	if _, err := m.Unarchive(ctx, a.Name); !errors.Is(err, chat.ErrNotFound) {
		t.Errorf("unarchived after its removal: %v", err)
	}
}

func logOf(t *testing.T, m *manager, c chat.Chat) string {
	t.Helper()
	log, err := m.Log(operator(t.Context()), c.ID, -1)
	must(t, err)
	return string(log.Bytes())
}
