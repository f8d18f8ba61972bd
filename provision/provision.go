package provision

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/filerules"
	"github.com/chatd/chatd/internal/quota"
	"github.com/chatd/chatd/internal/secret"
	"github.com/chatd/chatd/provision/account"
	"github.com/chatd/chatd/provision/archives"
	"github.com/chatd/chatd/provision/hostprobe"
	"github.com/chatd/chatd/provision/idle"
	"github.com/chatd/chatd/provision/safefs"
	"github.com/chatd/chatd/provision/scheduler"
	"github.com/chatd/chatd/state"
)

// Manager provisions chats: it owns their records, accounts, homes, walls and
// sessions. Its exported methods are safe for concurrent use and satisfy
// verbs.Root; the caller is in the context ([chat.WithCaller]).
type Manager struct {
	*life
	*archiver
	*runner
	clock  *idle.Clock
	due    *scheduler.Schedules
	idle   *idle.Watch
	prober *hostprobe.Prober

	since      time.Time
	reconciled atomic.Bool // the first reconcile is done
	stop       context.CancelFunc
}

// Options is everything a [Manager] needs to know; cmd/chatd-root fills it from
// flags, environment and config. Directories are absolute.
type Options struct {
	// State is chatd's own directory that survives reboots: records, audit, private /tmp trees.
	State string
	// Run is chatd's own directory that a reboot may empty: sessions.
	Run string
	// Homes is the root-owned parent of the chats' homes.
	Homes string
	// Userdb is the directory of account records; nss-systemd(8) reads /etc/userdb.
	Userdb string
	// Account is auto, userdb or useradd.
	Account string
	// Shim is the chatd-shim binary to install into sessions.
	Shim string
	// Backend is auto, systemd or cgroupfs; empty is auto.
	Backend string
	// Cgroup is the name of the base cgroup below chatd's own, or of the slice and the units in it.
	// Two daemons on one host need two names.
	Cgroup string
	// Private is the parent of the private /tmp and /var/tmp trees; empty means State. With
	// systemd it is the directory that /etc/security/namespace.d/chatd.conf names.
	Private string
	// UIDs are the uids chats may get; the last one is reserved for probes,
	// the one before for sockets to DNS servers.
	UIDs state.Range
	// AuditMax bounds the audit log in bytes; a full log is rotated. AuditKeep is how many
	// full logs are retained. Zero means no bound, and all.
	AuditMax  int64
	AuditKeep int
	// LandlockABI is the least Landlock ABI that a session may start with.
	LandlockABI int
	// MaxAwake bounds how many chats are awake simultaneously, and MaxAwakeMemory the sum of their
	// memory_max; 0 is not a bound.
	MaxAwake       int
	MaxAwakeMemory uint64
	// Shares bound one owner's part of the shared resources. The API counts streams.
	Shares quota.Limits
	// Starts bounds the simultaneous creates and wakes; 0 is one for each CPU, and at least
	// two. No flag or config key reaches it.
	Starts int
	// DiskEvery is the time between two looks at what chats have on disk; 0 is 10 s. Tests alone
	// set it.
	DiskEvery time.Duration
	// FileMax bounds, in bytes, a file that the file tools write, and one streamed read; 0 is
	// 1 GiB.
	FileMax int64
	// Profiles are the policies by name; one is named default.
	Profiles map[string]chat.Profile
	// FileRules are the file rules of the profiles, by profile name; a profile without an entry
	// has the built-in ones. [Manager.SetFileRules] replaces them.
	FileRules map[string]*filerules.Policy
	// Enforce is the chatd-enforce binary, which chatd starts if no enforcer answers.
	Enforce string
	// Egress is the chatd-egress binary, which chatd starts if none answers, as EgressUID and
	// EgressGID. It asks DNSServers for the names of chats.
	Egress               string
	EgressUID, EgressGID uint32
	DNSServers           []netip.AddrPort
	// Claim refuses to start beside another chatd in this network namespace.
	Claim    bool
	MaxFlows int // of all chats in two minutes; 0: by the host's table
	// Archives is where archives of chats are kept; nil keeps none.
	Archives *ArchiveOptions
	// Secrets are what chats of profiles that name them may use; see [Manager.ReloadSecrets].
	Secrets map[string]secret.Spec
	// AllowMissing excuses layers that the host lacks.
	AllowMissing []chat.LayerName
	// Without leaves layers out. Tests use it to show that each wall is needed; no flag or
	// config key reaches it.
	Without []chat.LayerName
	// Unwatched leaves a foreign change of the packet rules to the next Reconcile. Tests use
	// it to check which walls hold meanwhile; no flag or config key reaches it.
	Unwatched bool
	// Every is how often the host is compared with the records; zero means a minute.
	Every time.Duration
	// Progress is called with the last action of Open, so that a waiter sees progress; may be nil.
	Progress func(what string)
	// Version is shown by Host.
	Version string
	Log     *slog.Logger
}

// ArchiveOptions say where archives of chats are kept.
type ArchiveOptions struct {
	archives.Options // but for its Key, which the Manager derives
	// Recipients and Identities are files of age keys that only root can read, or empty: archives
	// are encrypted to the recipients, and decrypted with the identities.
	Recipients, Identities string
	// Program is the chatd-archive binary to install into sessions.
	Program string
}

// dnsUID is that of sockets to DNS servers; no process has it.
func (o Options) dnsUID() uint32 { return o.UIDs.High - 1 }

// check refuses options with which chatd could not serve.
func (o Options) check() error {
	for _, d := range []struct{ key, path string }{
		{"state", o.State}, {"run", o.Run}, {"homes", o.Homes}, {"userdb", o.Userdb},
	} {
		if !filepath.IsAbs(d.path) {
			return chat.Invalid("cannot use %s directory %q: want an absolute path", d.key, d.path)
		}
	}
	for name, p := range o.Profiles {
		if err := errors.Join(p.Validate(), secret.Check(p, o.Secrets)); err != nil {
			return err
		}
		if name != p.Name {
			return chat.Invalid("cannot use profile %q: it calls itself %q", name, p.Name)
		}
	}
	if _, ok := o.Profiles[chat.DefaultProfile]; !ok {
		return chat.Invalid("cannot serve: no profile named %s", chat.DefaultProfile)
	}
	return account.CheckRange(o.UIDs.Low, o.UIDs.High)
}

// prepare makes the directories of options with which chatd can serve.
func (o Options) prepare() error {
	if err := o.check(); err != nil {
		return err
	}
	return errors.Join(safefs.MakeRoot(o.State, 0o711), safefs.MakeRoot(o.Run, 0o755))
}
