package provision

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/shims"
)

// commandDirs are where allowed commands are looked for, as the session sees them.
var commandDirs = []string{"/usr/local/bin", "/usr/bin"}

func (m *Manager) binDir(profile string) string {
	return filepath.Join(m.paths.profiles, profile, "bin")
}

func (m *Manager) shimDir(profile string) string {
	return filepath.Join(m.paths.profiles, profile, "shims")
}

// installPrograms puts chatd-shim and the two directories of the PATH where
// sessions get them from: root's own directories, which no chat can write to,
// whatever the directory that chatd itself was started from.
func (m *Manager) installPrograms() error {
	if err := installProgram(m.opt.Shim, m.paths.shim); err != nil {
		return err
	}
	return m.linkPrograms()
}

// linkedPrograms says what the directories of the PATH were made from.
type linkedPrograms struct {
	mu sync.Mutex
	// seen is when each directory of the host's programs had changed last.
	seen []time.Time
	// times counts how often they were made.
	times atomic.Int64
}

// linkPrograms brings the PATH of every profile up to what the host has, if that changed:
// what is installed after chatd was started is there for the next wake or run.
func (m *Manager) linkPrograms() error {
	m.linked.mu.Lock()
	defer m.linked.mu.Unlock()
	now := changedAt(append(commandDirs, "/etc/alternatives"))
	if m.linked.seen != nil && slices.EqualFunc(now, m.linked.seen, time.Time.Equal) {
		return nil
	}
	programs := shims.NewPrograms(commandDirs)
	for name, p := range m.opt.Profiles {
		if err := m.linkProfile(name, p, programs); err != nil {
			return err
		}
	}
	m.linked.seen = now
	m.linked.times.Add(1)
	return nil
}

// linkProfile makes the PATH of one profile.
func (m *Manager) linkProfile(name string, p chat.Profile, programs *shims.Programs) error {
	if err := makeRootDir(filepath.Dir(m.binDir(name)), 0o755); err != nil {
		return err
	}
	missing, err := programs.WriteBin(m.binDir(name), p.Commands)
	if err != nil {
		return err
	}
	if len(missing) > 0 {
		m.log.Info("commands of the profile are not on this host", "profile", name, "missing", missing)
	}
	return shims.WriteShims(m.shimDir(name), shims.InsideShim, m.binDir(name))
}

// freshPrograms is linkPrograms for a wake or a run, which go on with what there was.
func (m *Manager) freshPrograms() { m.report("the commands in PATH", m.linkPrograms()) }

// forgetPrograms has the next linkPrograms look at every program again: a change within the
// same tick of the file system's clock, or of a mode, moves no directory's time.
func (m *Manager) forgetPrograms() {
	m.linked.mu.Lock()
	defer m.linked.mu.Unlock()
	m.linked.seen = nil
}

// changedAt is when each directory was changed last; zero for one that is not there.
func changedAt(dirs []string) []time.Time {
	times := make([]time.Time, len(dirs))
	for i, dir := range dirs {
		if fi, err := os.Stat(dir); err == nil {
			times[i] = fi.ModTime()
		}
	}
	return times
}

// installProgram puts a copy of a program in place in one step, if nobody but root could have
// written the program. Sessions that live keep the file they were started with.
func installProgram(from, to string) error {
	f, err := os.Open(from)
	if err != nil {
		return fmt.Errorf("cannot install %s: %w", from, err)
	}
	defer f.Close()
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return fmt.Errorf("cannot install %s: %w", from, err)
	}
	if err := checkRoots(from, st); err != nil {
		return err
	}
	content, err := io.ReadAll(f)
	if err != nil {
		return fmt.Errorf("cannot install %s: %w", from, err)
	}
	if have, err := os.ReadFile(to); err == nil && bytes.Equal(have, content) && checkProgram(to) == nil {
		return nil
	}
	if err := replaceFile(to, content, 0o755); err != nil {
		return fmt.Errorf("cannot install %s: %w", to, err)
	}
	return nil
}

// checkProgram refuses a program to be started as root that anybody else could have written.
func checkProgram(file string) error {
	var st unix.Stat_t
	if err := unix.Stat(file, &st); err != nil {
		return fmt.Errorf("cannot use the program %s: %w: %w", chat.Quote(file), err, chat.ErrUnsupported)
	}
	return checkRoots(file, st)
}

// checkRoots is checkProgram for a file whose status is known.
func checkRoots(file string, st unix.Stat_t) error {
	if st.Mode&unix.S_IFMT != unix.S_IFREG || st.Mode&0o111 == 0 {
		return fmt.Errorf("cannot use the program %s: want a file that may be executed: %w", chat.Quote(file), chat.ErrUnsupported)
	}
	if who := writersOf(st); who != "" {
		return fmt.Errorf("cannot use the program %s: %s may write to it; want a file that only root may write to: %w", chat.Quote(file), who, chat.ErrUnsupported)
	}
	return nil
}
