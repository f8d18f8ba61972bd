package roottest

import (
	"encoding/json"
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
	"github.com/chatd/chatd/internal/sys"
	"github.com/chatd/chatd/state"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// outside runs a program of the host as a uid, outside every session.
func outside(t *testing.T, uid uint32, argv ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Credential: &syscall.Credential{Uid: uid, Gid: uid}}
	return cmd
}

// sysVOf lists what a uid has of the host's System V objects.
func sysVOf(t *testing.T, uid uint32) (all []string) {
	t.Helper()
	for file, col := range map[string]int{"shm": 7, "sem": 4, "msg": 7} {
		for line := range strings.Lines(string(must.Get(os.ReadFile("/proc/sysvipc/" + file))(t))) {
			if f := strings.Fields(line); len(f) > col && f[col] == strconv.FormatUint(uint64(uid), 10) {
				all = append(all, file+" "+f[1])
			}
		}
	}
	return all
}

// trace is one kind of thing that a uid can have on the host outside its chat's trees.
type trace struct {
	name string
	// put makes it as the uid, or the daemon that keeps it for the uid, would; has looks for it.
	put func(*testing.T, chat.Chat)
	has func(*testing.T, chat.Chat) bool
}

// filled is a text with the chat's name and uid in it.
func filled(text string, c chat.Chat) string {
	return strings.NewReplacer("NAME", c.User, "UID", fmt.Sprint(c.UID)).Replace(text)
}

// fileTrace is a file; owned, of the uid, and else of root.
func fileTrace(name, path string, owned bool) trace {
	of := func(c chat.Chat) string { return filled(path, c) }
	return trace{name, func(t *testing.T, c chat.Chat) {
		must.Do(t, os.MkdirAll(filepath.Dir(of(c)), 0o755))
		f := must.Get(os.OpenFile(of(c), os.O_CREATE|os.O_EXCL|os.O_RDONLY, 0o600))(t)
		must.Do(t, f.Close())
		if owned {
			must.Do(t, os.Chown(of(c), int(c.UID), int(c.UID)))
		}
	}, func(_ *testing.T, c chat.Chat) bool { return exists(of(c))() }}
}

// sysVTrace is a System V object of a kind of ipcmk(1), which stands in /proc/sysvipc/FILE.
func sysVTrace(file string, args ...string) trace {
	return trace{"System V " + file, func(t *testing.T, c chat.Chat) {
		cmd := outside(t, c.UID, append([]string{"ipcmk"}, args...)...)
		must.Run(t, cmd)
	}, func(t *testing.T, c chat.Chat) bool {
		return slices.ContainsFunc(sysVOf(t, c.UID), func(s string) bool {
			return strings.HasPrefix(s, file+" ")
		})
	}}
}

// keyTrace is a key in a keyring of the uid; ring finds that as the uid.
func keyTrace(name string, ring func() (int, error)) trace {
	return trace{name, func(t *testing.T, c chat.Chat) {
		must.Do(t, sys.AsUID(c.UID, func() error {
			id, err := ring()
			if err == nil {
				_, err = unix.AddKey("user", "chatd-test", []byte("secret"), id)
			}
			return err
		}))
	}, func(t *testing.T, c chat.Chat) bool {
		b := must.Get(os.ReadFile("/proc/key-users"))(t)
		return strings.Contains(string(b), fmt.Sprintf("%d:", c.UID))
	}}
}

func special(id int) func() (int, error) {
	return func() (int, error) { return unix.KeyctlGetKeyringID(id, true) }
}

// lineTrace is a line of a file of /etc.
func lineTrace(path, line string) trace {
	of := func(c chat.Chat) string { return filled(line, c) + "\n" }
	return trace{"a line of " + path, func(t *testing.T, c chat.Chat) {
		f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
		must.Do(t, err)
		_, err = f.WriteString(of(c))
		must.Do(t, errors.Join(err, f.Close()))
	}, func(t *testing.T, c chat.Chat) bool {
		b := must.Get(os.ReadFile(path))(t)
		return strings.Contains("\n"+string(b), "\n"+of(c))
	}}
}

// wallTrace is a rule of its own in the packet rules.
func wallTrace(m *manager) trace {
	return trace{"a packet rule", func(t *testing.T, c chat.Chat) {
		patchEgress(t, m, c.ID, `{"egress_add": ["`+peerV4.String()+`:8000"]}`)
	}, func(t *testing.T, c chat.Chat) bool {
		found := false
		for _, save := range []string{"iptables-save", "ip6tables-save"} {
			out := must.Get(exec.Command(save).Output())(t)
			found = found || strings.Contains(string(out), fmt.Sprintf("--uid-owner %d ", c.UID))
		}
		return found
	}}
}

// processTrace is a process outside the session.
func processTrace() trace {
	return trace{"a process", func(t *testing.T, c chat.Chat) {
		cmd := outside(t, c.UID, "sleep", "1234567")
		must.Do(t, cmd.Start())
		ended := make(chan struct{})
		go func() { _ = cmd.Wait(); close(ended) }() // the manager may come first
		t.Cleanup(func() { _ = cmd.Process.Kill(); <-ended })
	}, func(_ *testing.T, c chat.Chat) bool { return len(pidsOf(c.UID)) > 0 }}
}

// tracesElsewhere are all kinds that reap sweeps. Journals and lingering belong to root; the
// uid and the name stand in the names alone.
func tracesElsewhere(m *manager) []trace {
	all := []trace{
		processTrace(), wallTrace(m),
		sysVTrace("shm", "-M", "4096"), sysVTrace("msg", "-Q"), sysVTrace("sem", "-S", "1"),
		keyTrace("a user keyring", special(unix.KEY_SPEC_USER_KEYRING)),
		keyTrace("a user session keyring", special(unix.KEY_SPEC_USER_SESSION_KEYRING)),
		keyTrace("a persistent keyring", func() (int, error) {
			const own, here = -1, unix.KEY_SPEC_PROCESS_KEYRING
			id, err := unix.KeyctlInt(unix.KEYCTL_GET_PERSISTENT, own, here, 0, 0)
			if err == unix.EOPNOTSUPP { // the kernel is without them
				return special(unix.KEY_SPEC_USER_KEYRING)()
			}
			return id, err
		}),
		fileTrace("a POSIX queue", "/dev/mqueue/UID", true),
		fileTrace("POSIX shared memory", "/dev/shm/chatd-test-UID", true),
		fileTrace("cron", "/var/spool/cron/crontabs/NAME", true),
		fileTrace("an at job", "/var/spool/cron/atjobs/aUID", true),
		fileTrace("the output of an at job", "/var/spool/cron/atspool/aUID", true),
		fileTrace("mail", "/var/mail/NAME", true),
		fileTrace("linger", "/var/lib/systemd/linger/NAME", false),
		fileTrace("a runtime directory", "/run/user/UID/bus", true),
		lineTrace("/etc/subuid", "NAME:100000:65536"), lineTrace("/etc/subgid", "UID:100000:65536"),
	}
	for _, dir := range []string{"/var/log/journal/6f/", "/run/log/journal/6f/"} {
		for _, file := range []string{
			"user-UID.journal", "user-UID@0005-01.journal", "user-UID@0005-02.journal~",
		} {
			all = append(all, fileTrace("a journal", dir+file, false))
		}
	}
	return all
}

// TestReapSweeps: what lies about of a chat's uid where other daemons and the kernel keep things by
// user goes with the chat, and what is of its neighbour stays.
func TestReapSweeps(t *testing.T) {
	opt := options(t)
	p := opt.Profiles[chat.DefaultProfile]
	p.EgressMayAdd = parsedAllows(t, peerV4.String()+":8000")
	opt.Profiles[chat.DefaultProfile] = p
	m := open(t, opt)
	gone := asleep(t, m, "is swept")
	asleep(t, m, "between them") // two exceptions in a row leave single uids of their block
	stays := asleep(t, m, "is not swept")
	for _, dir := range []string{
		"/var/spool", "/var/mail", "/var/lib/systemd", "/run/user", "/var/log/journal",
		"/run/log/journal",
	} {
		mount(t, "tmpfs", dir, "mode=755")
	}
	mount(t, "mqueue", "/dev/mqueue", "")
	longer := fmt.Sprintf("/var/log/journal/6f/user-%d5.journal", gone.UID)
	neighbours := fileTrace("a journal of a longer uid", longer, false)
	neighbours.put(t, stays)
	all := tracesElsewhere(m)
	for _, tr := range all {
		for _, c := range []chat.Chat{gone, stays} {
			if tr.put(t, c); !tr.has(t, c) {
				t.Fatalf("%s of %s is not seen: the test would show nothing", tr.name, c.ExternalID)
			}
		}
	}
	must.Do(t, m.Reap(operator(t.Context()), gone.ID))
	for _, tr := range all {
		expect.True(t, !tr.has(t, gone), "%s is left", tr.name)
		expect.True(t, tr.has(t, stays), "%s of the neighbour is gone", tr.name)
	}
	expect.True(t, neighbours.has(t, stays), "%s is gone", neighbours.name)
	must.Do(t, m.Reap(operator(t.Context()), stays.ID)) // what was made for it goes too
	for _, tr := range all {
		expect.True(t, !tr.has(t, stays), "%s is left of the neighbour", tr.name)
	}
}

// TestUIDRangeTaken: a range of uids that an account, a group or subordinate ids of the host meet
// is refused before anything is made, with what to do.
func TestUIDRangeTaken(t *testing.T) {
	low := testUIDs.Low + 1000
	for name, line := range map[string]string{
		"/etc/passwd": fmt.Sprintf("taken:x:%d:100::/:/bin/false", low+5),
		"/etc/group":  fmt.Sprintf("taken:x:%d:", low+6),
		"/etc/subuid": fmt.Sprintf("taken:%d:10", low-4),
		"/etc/subgid": fmt.Sprintf("taken:%d:65536", low+7),
	} {
		t.Run(filepath.Base(name), func(t *testing.T) {
			opt := options(t)
			opt.UIDs = state.Range{Low: low, High: low + 999}
			opt.State = filepath.Join(filepath.Dir(opt.State), "unmade") // options made the other
			was, err := os.ReadFile(name)
			if err != nil && !errors.Is(err, os.ErrNotExist) {
				t.Fatal(err)
			}
			t.Cleanup(func() { must.Do(t, os.WriteFile(name, was, 0o644)) })
			must.Do(t, os.WriteFile(name, append(append([]byte{}, was...), line+"\n"...), 0o644))
			m, err := openManager(t.Context(), opt)
			if err == nil {
				must.Do(t, m.Close())
			}
			if !errors.Is(err, chat.ErrInvalid) || !strings.Contains(err.Error(), "taken") || !strings.Contains(err.Error(), "set uids to a free range") {
				t.Errorf("%v", err)
			}
			if exists(filepath.Join(opt.State, "install.key"))() || exists(opt.Run)() || exists(opt.Homes)() {
				t.Errorf("something was made in %s, %s or %s", opt.State, opt.Run, opt.Homes)
			}
		})
	}
}

// TestReapNamesWhatItLeaves: files of the uid in what was exposed for writing, and in the host's
// /tmp, outlive the chat, and the audit log says where they are.
func TestReapNamesWhatItLeaves(t *testing.T) {
	opt, s := withShop(t)
	m := open(t, opt)
	c := create(t, m, "leaves files", "shop")
	run(t, m, c.ID, "echo mine >~/shared/mine")
	loose := fmt.Sprintf("/tmp/chatd-test-%d", c.UID)
	must.Do(t, os.WriteFile(loose, nil, 0o600))
	t.Cleanup(func() { must.Do(t, os.Remove(loose)) })
	must.Do(t, os.Chown(loose, int(c.UID), int(c.UID)))
	must.Do(t, m.Reap(operator(t.Context()), c.ID))
	for _, name := range []string{loose, s.at("shared/mine")} {
		expect.True(t, exists(name)(), "%s is gone", name)
		expect.True(t, len(auditLines(t, opt, `"outcome":"left"`, name)) > 0, "the audit log does not name %s", name)
	}
}

// verified is what chatd verify --json prints.
type verified struct {
	Strays []struct {
		UID   uint32
		Chat  chat.ID
		Files int
		First []string
		Find  string
	}
}

// verify runs chatd verify for one mount.
func (d *daemon) verify(t *testing.T, socket, config, mount string) (v verified, code int) {
	t.Helper()
	cmd := exec.Command(programs.chatd, "--json", "--socket", socket, "verify", "--config", config,
		"--under", mount)
	out, err := cmd.Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		code, err = exit.ExitCode(), nil
		if len(out) == 0 {
			t.Errorf("verify says %s", exit.Stderr)
		}
	}
	must.Do(t, errors.Join(err, json.Unmarshal(out, &v)))
	return v, code
}

// TestVerifyFindsWhatReapLeaves: chatd verify names a file of a reaped uid where no layout leads,
// with its chat and a command that lists it; files of the living are not named, and nothing is
// removed. A journal that journald made anew goes with the next reap.
func TestVerifyFindsWhatReapLeaves(t *testing.T) {
	opt := options(t)
	stray := filepath.Join(filepath.Dir(opt.State), "strays")
	mount(t, "tmpfs", stray, "mode=755")
	config, socket := configFile(t, opt), filepath.Join(opt.Run, "chatd.sock")
	d := startDaemonOf(t, opt, config, "")
	awake := false
	create := func(external string) chat.Chat {
		return must.First(d.Create(t.Context(), chat.Spec{ExternalID: external, Awake: &awake}))(t)
	}
	gone, stays, last := create("leaves a file"), create("stays"), create("last")
	put := func(c chat.Chat, name string) string {
		name = filepath.Join(stray, name)
		must.Do(t, errors.Join(os.MkdirAll(filepath.Dir(name), 0o700), os.WriteFile(name, nil, 0o600),
			os.Chown(name, int(c.UID), int(c.UID))))
		return name
	}
	left, living := put(gone, "copied by root/\n\x1b[2J"), put(stays, "shared/notes")
	if v, code := d.verify(t, socket, config, stray); code != 0 || len(v.Strays) > 0 {
		t.Errorf("before a reap: exit %d, %+v", code, v)
	}
	must.Do(t, d.Reap(t.Context(), gone.ID))
	v, code := d.verify(t, socket, config, stray)
	if code != 1 || len(v.Strays) != 1 || v.Strays[0].UID != gone.UID || v.Strays[0].Chat != gone.ID ||
		v.Strays[0].Files != 1 || !strings.HasSuffix(v.Strays[0].First[0], `/copied by root/\n\x1b[2J"`) {
		t.Fatalf("exit %d, %+v", code, v)
	}
	list, err := exec.Command("bash", "-c", v.Strays[0].Find).Output()
	if must.Do(t, err); string(list) != left+"\n" {
		t.Errorf("%s lists %q", v.Strays[0].Find, list)
	}
	expect.True(t, exists(left)() && exists(living)(), "a file was removed")
	mount(t, "tmpfs", "/var/log/journal", "mode=755")
	journal := fileTrace("a journal", "/var/log/journal/6f/user-UID.journal", false)
	journal.put(t, stays)
	journal.put(t, gone) // as journald does that rotates its files
	must.Do(t, d.Reap(t.Context(), last.ID))
	if journal.has(t, gone) || !journal.has(t, stays) {
		t.Errorf("the journal of the reaped is there: %v, of the living: %v", journal.has(t, gone),
			journal.has(t, stays))
	}
}
