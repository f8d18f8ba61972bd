package roottest

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"filippo.io/age"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/provision"
	"github.com/chatd/chatd/provision/archives"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// keepsArchives gives a daemon a directory for archives.
func keepsArchives(t *testing.T, opt provision.Options) provision.Options {
	t.Helper()
	dir := t.TempDir() // not in /srv, where the traces of chats are looked for
	opt.Archives = &provision.ArchiveOptions{Options: archives.Options{Dir: dir}, Program: programs.archive}
	return opt
}

// withKeys encrypts the archives of opt to a new key, which root has or has not.
func withKeys(t *testing.T, opt provision.Options, have bool) *age.X25519Identity {
	t.Helper()
	key := must.Get(age.GenerateX25519Identity())(t)
	dir := filepath.Join(filepath.Dir(opt.State), "keys")
	opt.Archives.Recipients = filepath.Join(dir, "recipients")
	writeFile(t, opt.Archives.Recipients, key.Recipient().String()+"\n", 0o600)
	if have {
		opt.Archives.Identities = filepath.Join(dir, "identities")
		writeFile(t, opt.Archives.Identities, key.String()+"\n", 0o600)
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
	return must.Get(m.Archive(operator(t.Context()), c.ID, chat.ToArchive{Keep: keep}))(t)
}

// TestArchive: an archived chat is gone, and comes back with its home, record, log and schedules
// under another uid; in clear and encrypted.
func TestArchive(t *testing.T) {
	for _, encrypted := range []bool{false, true} {
		t.Run(map[bool]string{false: "clear", true: "encrypted"}[encrypted], func(t *testing.T) {
			opt := keepsArchives(t, options(t))
			if encrypted {
				withKeys(t, opt, true)
			}
			archiveAndBack(t, open(t, opt))
		})
	}
}

func archiveAndBack(t *testing.T, m *manager) {
	ctx := operator(t.Context())
	c := must.First(m.Create(ctx, chat.Spec{
		ExternalID: "telegram:1", Profile: "web", Labels: map[string]string{"team": "ops"},
		Env: map[string]string{"GREETING": "hello"},
	}))(t)
	tell := furnishHome(t, m, c)
	before := run(t, m, c.ID, tell)
	must.Do(t, m.Input(ctx, c.ID, chat.Input{Text: "echo in the log", Enter: true}))
	until(t, "the log has it", func() bool { return strings.Contains(logOf(t, m, c), "in the log") })
	sched := must.Get(m.PutSchedule(ctx, c.ID, chat.NewSchedule{
		Spec: chat.ScheduleSpec{Every: chat.Duration(time.Hour), Command: "true"}, Next: time.Now().Add(time.Hour),
	}))(t)

	a := archiveChat(t, m, c, false)
	expect.Is(t, expect.Err(m.Get(ctx, c.ID)), chat.ErrNotFound, "the chat is still there")
	expect.Is(t, expect.Err(os.Lstat(c.Home)), os.ErrNotExist, "its home is still there")
	all := must.Get(m.Archives(ctx, chat.ArchiveFilter{Chat: c.ID}))(t)
	if len(all) != 1 || all[0].Name != a.Name || all[0].Bytes < 4 || all[0].ExternalID != "telegram:1" {
		t.Errorf("the list has %+v", all)
	}
	must.Get(m.VerifyArchive(ctx, a.Name))(t)

	back := must.Get(m.Unarchive(ctx, a.Name))(t)
	if back.ID != c.ID || back.UID == c.UID || back.Labels["team"] != "ops" || back.Awake ||
		back.Env["GREETING"] != "hello" || back.Profile != "web" || !back.CreatedAt.Equal(c.CreatedAt) {
		t.Errorf("it came back as %+v, was %+v", back, c)
	}
	after := run(t, m, c.ID, tell)
	expect.True(t, after.Stdout == before.Stdout && before.Exit == 0,
		"its home has\n%s\nit had\n%s%s", after.Stdout, before.Stdout, before.Stderr)
	log := logOf(t, m, c)
	expect.True(t, strings.Contains(log, "in the log"), "its log has %q", log)
	got := must.Get(m.KeptSchedule(ctx, c.ID, sched.ID))(t)
	expect.True(t, got.Spec.Command == "true", "its schedule is %+v", got)
	expect.Is(t, expect.Err(m.Unarchive(ctx, a.Name)), chat.ErrExists, "unarchived twice")
	a = archiveChat(t, m, back, false)
	again, made, err := m.Create(ctx, chat.Spec{ExternalID: "telegram:1", Profile: "web", Unarchive: true})
	expect.True(t, err == nil && !made && again.Labels["team"] == "ops" && again.UID != back.UID,
		"its create makes %+v, %t, %v", again, made, err)
	must.Do(t, m.RemoveArchive(ctx, a.Name))
	expect.Is(t, expect.Err(m.Unarchive(ctx, a.Name)), chat.ErrNotFound, "unarchived after its removal")
}

func logOf(t *testing.T, m *manager, c chat.Chat) string {
	t.Helper()
	log := must.Get(m.Log(operator(t.Context()), c.ID, -1))(t)
	return string(log.Bytes())
}

// archiveFiles are the files in the directory of the archives.
func archiveFiles(t *testing.T, opt provision.Options) (names []string) {
	t.Helper()
	all, err := os.ReadDir(opt.Archives.Dir)
	if !errors.Is(err, os.ErrNotExist) {
		must.Do(t, err)
	}
	for _, e := range all {
		names = append(names, e.Name())
	}
	return names
}

// stays fails the test unless the chat is as it was: it wakes, and has its file.
func stays(t *testing.T, m *manager, opt provision.Options, c chat.Chat) {
	t.Helper()
	prints(t, m, c.ID, "cat ~/kept", "kept\n")
	left := archiveFiles(t, opt)
	expect.True(t, len(left) == 0, "of the archive there is %q", left)
}

// kept is a chat with a file.
func kept(t *testing.T, m *manager, external string) chat.Chat {
	t.Helper()
	c := create(t, m, external, "default")
	run(t, m, c.ID, "echo kept >~/kept")
	return c
}

// TestArchiveDeep: a tree of 1,250 directories in one another, whose paths are longer than a system
// call takes, comes back to the byte, in a chat with as few descriptors as a profile may give. One
// with a path that no archive has is refused by that path, the chat stays, and its reap leaves
// nothing of it.
func TestArchiveDeep(t *testing.T) {
	opt := keepsArchives(t, attackOptions(t))
	edit(opt, "default", func(p *chat.Profile) { p.Limits.NoFile = 64 })
	m := open(t, opt)
	ctx := operator(t.Context())
	c := kept(t, m, "deep")
	const tell = `find deep -printf '%P %y %m %s %n %T@\n' | sort | sha256sum; find deep -type f -printf '%s ' -execdir cat {} + `
	long := func(command string) chat.RunResult {
		return must.Get(m.Run(ctx, c.ID, chat.RunSpec{Command: command, Timeout: chat.Duration(longEnough)}))(t)
	}
	before := long(`mkdir deep && cd deep && p=$(printf 'ddd/%.0s' $(seq 250)) && for i in 1 2 3 4 5; do
		mkdir -p $p && cd -P $p && echo $i >file && ln file ~/deep/up$i && ln ~/kept kept || exit; done; cd && ` + tell)
	must.True(t, before.Exit == 0 && strings.Count(before.Stdout, "kept") == 5, "%+v", before)
	back, err := m.Unarchive(ctx, archiveChat(t, m, c, false).Name)
	must.Do(t, err)
	if after := run(t, m, back.ID, tell); after.Stdout != before.Stdout {
		t.Errorf("it has\n%s%s\nit had\n%s", after.Stdout, after.Stderr, before.Stdout)
	}
	run(t, m, back.ID, `n=$(printf 'd%.0s' $(seq 255)) && p=$n/$n/$n/$n/$n/$n/$n/$n/$n/$n/$n/$n/$n && for i in $(seq 20); do
		mkdir -p $p && cd -P $p || exit; done`)
	_, err = m.Archive(ctx, back.ID, chat.ToArchive{Keep: true})
	if !errors.Is(err, chat.ErrInvalid) || !strings.Contains(err.Error(), strings.Repeat("d", 64)) ||
		!strings.Contains(err.Error(), "remove or move what is there, or reap the chat without an archive") {
		t.Errorf("%v", err)
	}
	prints(t, m, back.ID, "cat ~/kept", "kept\n")
	must.Do(t, m.Reap(ctx, back.ID))
	expect.Is(t, expect.Err(os.Lstat(back.Home)), os.ErrNotExist, "its home is still there")
}

// TestArchiveRefused: another owner's chat is not archived, and stays.
func TestArchiveRefused(t *testing.T) {
	opt := keepsArchives(t, options(t))
	m := open(t, opt)
	ctx := operator(t.Context())
	stranger := asBridge(t.Context(), "stranger")
	c := kept(t, m, "others")
	a := archiveChat(t, m, c, true)
	for what, err := range map[string]error{
		"archive": expect.Err(m.Archive(stranger, c.ID, chat.ToArchive{})), "verify": expect.Err(m.VerifyArchive(stranger, a.Name)),
		"unarchive": expect.Err(m.Unarchive(stranger, a.Name)), "remove": m.RemoveArchive(stranger, a.Name),
	} {
		expect.Is(t, err, chat.ErrNotFound, "%s", what)
	}
	all, err := m.Archives(stranger, chat.ArchiveFilter{})
	expect.True(t, err == nil && len(all) == 0, "listed are %+v, %v", all, err)
	must.Do(t, m.RemoveArchive(ctx, a.Name))
	stays(t, m, opt, c)
}

// TestArchiveOnFullDisk: an archive that would fill its file system is none.
func TestArchiveOnFullDisk(t *testing.T) {
	opt := keepsArchives(t, options(t))
	mount(t, "tmpfs", opt.Archives.Dir, "size=24m,mode=700")
	m := open(t, opt)
	c := kept(t, m, "full")
	run(t, m, c.ID, "head -c 20M /dev/urandom >~/much")
	expect.Says(t, expect.Err(m.Archive(operator(t.Context()), c.ID, chat.ToArchive{})),
		chat.ErrBusy, "bytes free", "")
	stays(t, m, opt, c)
}

// slowArchive has a daemon archive a chat, which takes for ever: the operator's command hangs. When
// it has begun, cancel ends its caller, and ended gets the error.
func slowArchive(t *testing.T, opt provision.Options, external string) (
	m *manager, c chat.Chat, cancel context.CancelFunc, ended <-chan error,
) {
	t.Helper()
	hangs(opt)
	m = open(t, opt)
	c = kept(t, m, external)
	ctx, cancel := context.WithCancel(operator(t.Context()))
	ended = going(func() error { return expect.Err(m.Archive(ctx, c.ID, chat.ToArchive{})) })
	until(t, "the command has begun", func() bool { return len(archiveFiles(t, opt)) == 3 })
	return m, c, cancel, ended
}

// hangs gives archives a command that never takes them.
func hangs(opt provision.Options) {
	a := opt.Archives
	a.Command, a.UID, a.GID = []string{"/bin/sleep", "1000"}, 60998, 60998
}

// TestArchiveEndsWithItsCaller: an archive whose caller leaves while it is written, here because
// the operator's command takes for ever, is none, and the chat goes on.
func TestArchiveEndsWithItsCaller(t *testing.T) {
	opt := keepsArchives(t, options(t))
	m, c, cancel, ended := slowArchive(t, opt, "slow")
	cancel()
	expect.Is(t, <-ended, context.Canceled, "")
	stays(t, m, opt, c)
}

// TestReapAfter: a chat that nobody uses is archived and reaped; one that is used, or has a
// schedule to come, is not. One that is used while it is archived stays.
func TestReapAfter(t *testing.T) {
	opt := keepsArchives(t, options(t))
	opt.Every = 100 * time.Millisecond
	edit(opt, "default", func(p *chat.Profile) { p.ReapAfter = chat.Duration(10 * time.Second) })
	m := open(t, opt)
	ctx := operator(t.Context())
	works := kept(t, m, "works")
	program(t, m, works)
	due := kept(t, m, "due")
	must.Get(m.PutSchedule(ctx, due.ID, chat.NewSchedule{
		Spec: chat.ScheduleSpec{Every: chat.Duration(time.Hour), Command: "true"}, Next: time.Now().Add(time.Hour),
	}))(t)
	other, unused := create(t, m, "other", "web"), kept(t, m, "unused")
	until(t, "the unused chat is gone", func() bool {
		_, err := m.Get(ctx, unused.ID)
		return errors.Is(err, chat.ErrNotFound)
	})
	for _, c := range []chat.Chat{works, due, other} {
		expect.Is(t, expect.Err(m.Get(ctx, c.ID)), nil, "%s", c.ExternalID)
	}
	all, err := m.Archives(ctx, chat.ArchiveFilter{})
	must.True(t, err == nil && len(all) == 1 && all[0].Chat == unused.ID,
		"archived are %+v, %v", all, err)
	back := must.Get(m.Unarchive(ctx, all[0].Name))(t)
	prints(t, m, back.ID, "cat ~/kept", "kept\n")
}

// TestReapAfterGivesWay: a message for a chat that is just being archived waits for a moment, and
// not for the archive.
func TestReapAfterGivesWay(t *testing.T) {
	opt := keepsArchives(t, options(t))
	opt.Every = 100 * time.Millisecond
	hangs(opt)
	edit(opt, "default", func(p *chat.Profile) { p.ReapAfter = chat.Duration(2 * time.Second) })
	m := open(t, opt)
	c := kept(t, m, "returns")
	until(t, "it is being archived", func() bool { return len(archiveFiles(t, opt)) == 3 })
	must.Do(t, m.Input(operator(t.Context()), c.ID, chat.Input{Text: "echo back", Enter: true}))
	stays(t, m, opt, c)
}

// TestArchiveMoves: another host with the same install key makes the chat of an archive, and one with
// another key does not.
func TestArchiveMoves(t *testing.T) {
	from := keepsArchives(t, options(t))
	key := []byte(nil)
	t.Run("from", func(t *testing.T) {
		m := open(t, from)
		archiveChat(t, m, kept(t, m, "moves"), false)
		key = must.Get(os.ReadFile(filepath.Join(from.State, "install.key")))(t)
	})
	for name, want := range map[string]bool{"with the key": true, "with another": false} {
		t.Run(name, func(t *testing.T) {
			to := options(t)
			to.Archives = from.Archives
			if want {
				must.Do(t, os.MkdirAll(to.State, 0o711))
				must.Do(t, os.WriteFile(filepath.Join(to.State, "install.key"), key, 0o600))
			}
			m := open(t, to)
			all := must.Get(m.Archives(operator(t.Context()), chat.ArchiveFilter{}))(t)
			if !want {
				expect.True(t, len(all) == 0, "listed are %+v", all)
				return
			}
			must.True(t, len(all) == 1, "listed are %+v", all)
			back := must.Get(m.Unarchive(operator(t.Context()), all[0].Name))(t)
			prints(t, m, back.ID, "cat ~/kept", "kept\n")
		})
	}
}

// TestArchivedIsBusy: who wants a chat that a caller archives hears so at once, and may look at it.
func TestArchivedIsBusy(t *testing.T) {
	opt := keepsArchives(t, options(t))
	m, c, cancel, ended := slowArchive(t, opt, "busy")
	for what, err := range map[string]error{
		"input":  m.Input(operator(t.Context()), c.ID, chat.Input{Text: "x"}),
		"wake":   expect.Err(m.Wake(operator(t.Context()), c.ID)),
		"reap":   m.Reap(operator(t.Context()), c.ID),
		"create": expect.Err(m.Create(operator(t.Context()), chat.Spec{ExternalID: "busy"})),
	} {
		expect.Says(t, err, chat.ErrBusy, "being archived", "%s", what)
	}
	got, err := m.Get(operator(t.Context()), c.ID)
	expect.True(t, err == nil && got.Archiving != nil, "it shows %+v, %v", got.Archiving, err)
	cancel()
	<-ended
	stays(t, m, opt, c)
}

// TestArchiveInLittleMemory: what packs and unpacks needs little of the chat's memory, whatever its
// home has.
func TestArchiveInLittleMemory(t *testing.T) {
	opt := keepsArchives(t, attackOptions(t))
	withKeys(t, opt, true)
	edit(opt, "default", func(p *chat.Profile) { p.Limits.MemoryMax = 48 << 20 })
	m := open(t, opt)
	c := kept(t, m, "little")
	run(t, m, c.ID, `cd && head -c 70M /dev/urandom >much && mkdir many && cd many && seq 5000 | xargs touch`)
	a := archiveChat(t, m, c, false)
	back := must.Get(m.Unarchive(operator(t.Context()), a.Name))(t)
	prints(t, m, back.ID, "cat ~/kept; ls ~/many | wc -l", "kept\n5000\n")
}
