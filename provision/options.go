package provision

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"time"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/filerules"
	"github.com/chatd/chatd/quota"
	"github.com/chatd/chatd/state"
)

// Options is everything a [Manager] needs to know; cmd/chatd-root fills it from
// flags, environment and config. Directories are absolute.
type Options struct {
	// State is chatd's own directory, kept over reboots: records, audit, private /tmp trees.
	State string
	// Run is chatd's own directory that a reboot may empty: sessions.
	Run string
	// Homes is the root-owned parent of the chats' homes.
	Homes string
	// Userdb is where account records go; nss-systemd(8) reads /etc/userdb.
	Userdb string
	// Account is auto, userdb or useradd.
	Account string
	// Shim is the chatd-shim binary to install into sessions.
	Shim string
	// Backend is auto, systemd or cgroupfs; empty is auto.
	Backend string
	// Cgroup is the name of the base cgroup below chatd's own, or of the slice and
	// the units in it; two daemons on one host need two names.
	Cgroup string
	// Private is the parent of the private /tmp and /var/tmp trees, State if it is
	// empty. With systemd it is what /etc/security/namespace.d/chatd.conf names.
	Private string
	// UIDs are the uids chats may get; the last one is kept for probes.
	UIDs state.Range
	// AuditMax is how many bytes the audit log may have before a new one is begun;
	// AuditKeep is how many full ones are kept. Zero means any number, and all.
	AuditMax  int64
	AuditKeep int
	// LandlockABI is the least Landlock ABI that a session may start with.
	LandlockABI int
	// MaxAwake bounds how many chats are awake at once.
	MaxAwake int
	// Shares bound what one owner may have of what all share. Streams are the API's to count.
	Shares quota.Limits
	// Starts bounds how many chats are created or woken at once; 0 is one for each CPU, and two
	// at least. No flag or config key reaches it.
	Starts int
	// FileMax bounds a file that the file tools write, and what one stream reads, in
	// bytes; 0 is 1 GiB.
	FileMax int64
	// Profiles are the policies by name; one is named default.
	Profiles map[string]chat.Profile
	// Access are the file rules of the profiles, by profile; one that is not here has
	// none. [Manager.SetAccess] replaces them.
	Access map[string]*filerules.Policy
	// Enforce is the chatd-enforce binary, which is started where none answers.
	Enforce string
	// AllowMissing excuses layers that the host lacks.
	AllowMissing []chat.LayerName
	// Without leaves layers out on purpose. Tests use it to see that each wall is
	// needed; no flag or config key reaches it.
	Without []chat.LayerName
	// Unwatched leaves packet rules that somebody changed to the next Reconcile. Tests
	// use it to see what holds meanwhile; no flag or config key reaches it.
	Unwatched bool
	// Every is how often the host is compared with the records; zero means a minute.
	Every time.Duration
	// Progress hears what Open did last, for whoever waits for it; nil hears nothing.
	Progress func(what string)
	// Version is shown by Host.
	Version string
	Log     *slog.Logger
}

func (m *Manager) checkOptions(context.Context) error {
	for _, d := range []struct{ key, path string }{
		{"state", m.opt.State}, {"run", m.opt.Run}, {"homes", m.opt.Homes}, {"userdb", m.opt.Userdb},
	} {
		if !filepath.IsAbs(d.path) {
			return fmt.Errorf("cannot use %s directory %q: want an absolute path: %w", d.key, d.path, chat.ErrInvalid)
		}
	}
	for name, p := range m.opt.Profiles {
		if err := p.Validate(); err != nil {
			return err
		}
		if name != p.Name {
			return fmt.Errorf("cannot use profile %q: it calls itself %q: %w", name, p.Name, chat.ErrInvalid)
		}
	}
	if _, ok := m.opt.Profiles[chat.DefaultProfile]; !ok {
		return fmt.Errorf("cannot serve: no profile named %s: %w", chat.DefaultProfile, chat.ErrInvalid)
	}
	return checkUIDRange(m.opt.UIDs)
}
