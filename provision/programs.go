package provision

import (
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/shims"
	"github.com/chatd/chatd/trees"
)

// commandDirs are the directories with the allowed commands, as the session sees them.
var commandDirs = []string{"/usr/local/bin", "/usr/bin"}

func (m *Manager) binDir(profile string) string {
	return filepath.Join(m.paths.profiles, profile, "bin")
}

func (m *Manager) shimDir(profile string) string {
	return filepath.Join(m.paths.profiles, profile, "shims")
}

// installPrograms installs chatd-shim and the two directories of each PATH into root's own
// directories, which sessions see and no chat can write to. The directory that chatd itself
// was started from may be writable.
func (m *Manager) installPrograms() error {
	if err := trees.InstallProgram(m.opt.Shim, m.paths.shim); err != nil {
		return err
	}
	return m.linkPrograms()
}

// linkedPrograms records the state of the host from which the PATHs were made.
type linkedPrograms struct {
	mu sync.Mutex
	// seen are the modification times of the host's directories of programs.
	seen []time.Time
	// times counts how often the PATHs were made.
	times atomic.Int64
}

// linkPrograms updates the PATH of every profile if the host's programs changed: the next wake
// or run sees a program that was installed after chatd's start.
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
	if err := trees.MakeRoot(filepath.Dir(m.binDir(name)), 0o755); err != nil {
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

// freshPrograms is linkPrograms for a wake or a run; on failure the old PATH stays.
func (m *Manager) freshPrograms() { m.report("the commands in PATH", m.linkPrograms()) }

// forgetPrograms makes the next linkPrograms read every program again: a change within one tick
// of the file system's clock, or of a mode, does not change a directory's time.
func (m *Manager) forgetPrograms() {
	m.linked.mu.Lock()
	defer m.linked.mu.Unlock()
	m.linked.seen = nil
}

// changedAt returns the modification time of each directory; zero for a missing one.
func changedAt(dirs []string) []time.Time {
	times := make([]time.Time, len(dirs))
	for i, dir := range dirs {
		if fi, err := os.Stat(dir); err == nil {
			times[i] = fi.ModTime()
		}
	}
	return times
}
