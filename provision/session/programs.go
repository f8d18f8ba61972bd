package session

import (
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/plan"
	"github.com/chatd/chatd/provision/safefs"
)

// commandDirs are the directories with the allowed commands, as the session sees them.
var commandDirs = []string{"/usr/local/bin", "/usr/bin"}

// Programs are the two directories of each profile's PATH: links to the allowed programs of the
// host, and the shims before them. They are root's; sessions see them, and no chat can write to
// them.
type Programs struct {
	dir string // of all profiles
	log *slog.Logger
	mu  sync.Mutex
	// seen are the modification times of the host's directories of programs when the PATHs were
	// made.
	seen []time.Time
	// made counts how often the PATHs were made.
	made atomic.Int64
}

// NewPrograms returns the PATHs below dir, which are not made yet.
func NewPrograms(dir string, log *slog.Logger) *Programs { return &Programs{dir: dir, log: log} }

// Bin is the directory of a profile's links.
func (p *Programs) Bin(profile string) string { return filepath.Join(p.dir, profile, "bin") }

// Shims is the directory of a profile's shims.
func (p *Programs) Shims(profile string) string { return filepath.Join(p.dir, profile, "shims") }

// Link makes the PATH of every profile anew if the host's programs changed since the last call. The
// next command of each session sees it. After an error some PATHs may be old.
func (p *Programs) Link(profiles map[string]chat.Profile) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := changedAt(append(commandDirs, "/etc/alternatives"))
	if p.seen != nil && slices.EqualFunc(now, p.seen, time.Time.Equal) {
		return nil
	}
	programs := plan.NewPrograms(commandDirs)
	for name, profile := range profiles {
		if err := p.linkProfile(name, profile, programs); err != nil {
			return err
		}
	}
	p.seen = now
	p.made.Add(1)
	return nil
}

func (p *Programs) linkProfile(name string, profile chat.Profile, programs *plan.Programs) error {
	if err := safefs.MakeRoot(filepath.Join(p.dir, name), 0o755); err != nil {
		return err
	}
	missing, err := programs.WriteBin(p.Bin(name), profile.Commands)
	if err != nil {
		return err
	}
	if len(missing) > 0 {
		p.log.Info("commands of the profile are not on this host",
			"profile", name, "missing", missing)
	}
	return plan.WriteShims(p.Shims(name), plan.InsideShim, p.Bin(name))
}

// Forget makes the next Link read every program again. A change within one tick of the file
// system's clock, or of a mode, does not change a directory's time.
func (p *Programs) Forget() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.seen = nil
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
