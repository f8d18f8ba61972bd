package enforce

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/filerules/rulefile"
	"github.com/chatd/chatd/internal/orders"
	"github.com/chatd/chatd/internal/sys"
	"github.com/chatd/chatd/test/must"
)

// testUID is nobody's: above every range that chatd uses, and without a name.
const testUID = 2147000001

// insideEnv marks this binary where it runs as the chat, in a session.
const insideEnv = "KEEPER_TEST_INSIDE"

func TestMain(m *testing.M) {
	if os.Getenv(insideEnv) != "" {
		beInside()
	}
	os.Exit(m.Run())
}

// openResult is what came of one path: which ways of opening it the kernel let through.
type openResult struct{ Read, Write, Truncate bool }

// beInside opens each path that stdin names and says what came of it.
func beInside() {
	in := bufio.NewReader(os.Stdin)
	for {
		line, err := in.ReadBytes('\n')
		var paths []string
		if err != nil || json.Unmarshal(line, &paths) != nil {
			os.Exit(0)
		}
		out := make([]openResult, len(paths))
		for i, p := range paths {
			if dir, ok := strings.CutPrefix(p, "cd "); ok {
				out[i].Read = unix.Chdir(dir) == nil
				continue
			}
			out[i] = openResult{opens(p, unix.O_RDONLY), opens(p, unix.O_WRONLY|unix.O_APPEND), unix.Truncate(p, 1) == nil}
		}
		b, _ := json.Marshal(out)
		fmt.Printf("%s\n", b)
	}
}

func opens(p string, flags int) bool {
	fd, err := unix.Open(p, flags|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return false
	}
	unix.Close(fd)
	return true
}

// inside is a session of bubblewrap's with an enforcer beside it.
type inside struct {
	k     *enforcer
	home  string
	order orders.Order
	in    io.WriteCloser
	out   *bufio.Reader
	// masks are names in the home, directories with a slash, that bubblewrap masks. They are made
	// first.
	masks []string
}

// newInside starts a session with an empty home, and an enforcer that may lack a wall.
func newInside(t testing.TB, bare, blind bool) *inside {
	t.Helper()
	s := idle(t)
	s.k.noMasks, s.k.watch.blind = bare, blind
	s.answer()
	return s
}

// answer makes the enforcer answer opens and look again at what was made.
func (s *inside) answer() {
	go func() { _ = s.k.watch.run() }()
	go s.k.recheckQueued()
}

// idle is a session with an enforcer that answers nothing yet.
func idle(t testing.TB) *inside {
	t.Helper()
	needsRoot(t)
	s := &inside{}
	s.settleIn(t, "00000000000000aa")
	return s
}

// beside is one more session of the same enforcer.
func (s *inside) beside(t testing.TB) *inside {
	t.Helper()
	other := &inside{k: s.k}
	other.settleIn(t, "00000000000000bb")
	return other
}

// settleIn makes the session, with an empty home, and an enforcer if there is none.
func (s *inside) settleIn(t testing.TB, id chat.ID) {
	t.Helper()
	dir := must.Get(os.MkdirTemp("/var/tmp", "chatd-keeper-"))(t)
	t.Cleanup(func() { must.Do(t, os.RemoveAll(dir)) })
	asWithSystemd(t, dir)
	s.home = filepath.Join(dir, "home")
	self := filepath.Join(dir, "inside")
	exe, err := os.ReadFile("/proc/self/exe")
	must.Do(t, errors.Join(err, os.WriteFile(self, exe, 0o755), os.Chmod(dir, 0o755), os.Mkdir(s.home, 0o755), os.Chown(s.home, testUID, testUID), os.Mkdir(s.home+"-shm", 0o755), os.Chown(s.home+"-shm", testUID, testUID)))
	if s.k == nil {
		perm, names, err := initWatch()
		must.Do(t, err)
		s.k = must.Get(newEnforcer(filepath.Join(dir, "keeper"), perm, names, os.Stderr))(t)
	}
	for _, name := range s.masks {
		at := filepath.Join(s.home, name)
		if strings.HasSuffix(name, "/") {
			must.Do(t, os.Mkdir(at, 0o755))
			at += "/in"
		}
		must.Do(t, os.WriteFile(at, []byte("x"), 0o644))
	}
	s.start(t, self, id)
}

// asWithSystemd makes dir a shared mount, as all are where systemd runs. What is mounted on a
// peer of it comes to the host, and to every other peer: at the end nothing may have come.
func asWithSystemd(t testing.TB, dir string) {
	t.Helper()
	must.Do(t, unix.Mount(dir, dir, "", unix.MS_BIND, ""))
	t.Cleanup(func() {
		text := must.Get(os.ReadFile("/proc/self/mountinfo"))(t)
		if n := strings.Count(string(text), " "+dir); n != 1 && n != 2 { // its root in the file system may end so, too
			t.Errorf("%d times below %s on the host, want the one mount", n, dir)
		}
		for unix.Unmount(dir, unix.MNT_DETACH) == nil {
			continue
		}
	})
	must.Do(t, unix.Mount("", dir, "", unix.MS_SHARED, ""))
}

// start starts bubblewrap and waits until this binary answers in it.
func (s *inside) start(t testing.TB, self string, id chat.ID) {
	infoR, infoW, err := os.Pipe()
	must.Do(t, err)
	args := []string{"--unshare-user", "--unshare-pid", "--disable-userns", "--info-fd", "3", "--clearenv", "--setenv", insideEnv, "1",
		"--proc", "/proc", "--dev", "/dev", "--bind", s.home + "-shm", "/dev/shm", "--dir", "/usr/lib/any", "--ro-bind", self, "/inside", "--bind", s.home, s.home}
	// No /usr: it is large, and each set of rules is looked through once. Where the test
	// was linked with libraries it gets those.
	libraries, _ := exec.Command("ldd", self).Output()
	for word := range strings.FieldsSeq(string(libraries)) {
		if filepath.IsAbs(word) {
			args = append(args, "--ro-bind", word, word)
		}
	}
	for _, name := range s.masks {
		mask := orders.ClosedFile
		if strings.HasSuffix(name, "/") {
			mask = orders.ClosedDirectory
		}
		dir := filepath.Join(filepath.Dir(s.home), orders.StartMasks)
		must.Do(t, errors.Join(os.MkdirAll(dir, 0o711), orders.MakeMasks(dir)))
		args = append(args, "--ro-bind", filepath.Join(dir, mask), filepath.Join(s.home, name))
	}
	cmd := exec.Command("bwrap", append(args, "--remount-ro", "/", "--chdir", s.home, "/inside")...)
	cmd.ExtraFiles, cmd.Stderr = []*os.File{infoW}, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: testUID, Gid: testUID}}
	s.in = must.Get(cmd.StdinPipe())(t)
	out, err := cmd.StdoutPipe()
	must.Do(t, errors.Join(err, cmd.Start()))
	s.out = bufio.NewReader(out)
	t.Cleanup(func() { s.k.drop(s.order.Chat); s.in.Close(); s.end(); _ = cmd.Process.Kill(); _ = cmd.Wait() })
	infoW.Close()
	var info struct {
		PID int `json:"child-pid"`
	}
	must.Do(t, json.NewDecoder(infoR).Decode(&info))
	infoR.Close()
	s.try(t, nil) // it answers, so the tree is whole
	st := must.Get(sys.ReadStat(info.PID))(t)
	s.order = orders.Order{Verb: orders.Apply, Chat: id, UID: testUID, PID: info.PID, Start: st.Start, Home: s.home}
}

// end ends what runs inside, also where it waits in an open.
func (s *inside) end() {
	if st, err := sys.ReadStat(s.order.PID); err == nil && st.Start == s.order.Start {
		_ = unix.Kill(s.order.PID, unix.SIGKILL)
	}
}

// compiled are the rules of a file as an order has them; of one that does not load, its text.
func compiled(rules string) []byte {
	p, err := rulefile.Load("rules.yaml", []byte(rules))
	if err != nil {
		return []byte(rules)
	}
	return p.Compiled()
}

// applyRules brings the session to rules.
func (s *inside) applyRules(rules string) (orders.Answer, error) {
	o := s.order
	o.Rules = compiled(rules)
	return s.k.execute(o)
}

// try opens the paths as the chat.
func (s *inside) try(t testing.TB, paths []string) []openResult {
	t.Helper()
	b := must.Get(json.Marshal(append([]string{}, paths...)))(t)
	must.Get(s.in.Write(append(b, '\n')))(t)
	line := must.Get(s.out.ReadBytes('\n'))(t)
	var out []openResult
	must.Do(t, json.Unmarshal(line, &out))
	for i := range out {
		if !s.k.watch.noNames && !out[i].Read && !out[i].Write {
			out[i].Truncate = false // truncate(2) opens nothing: only a mask keeps it off
		}
	}
	return out
}

func needsRoot(t testing.TB) {
	t.Helper()
	if os.Geteuid() != 0 {
		skip(t, "root")
	}
}

// skip gives the test up, for the host lacks what it needs.
func skip(t testing.TB, what string) {
	t.Helper()
	must.True(t, strings.TrimSpace(os.Getenv("CHATD_TEST_REQUIRE")) != "all",
		"needs %s, and CHATD_TEST_REQUIRE=all", what)
	t.Skipf("SKIPPED: needs %s", what)
}
