package cgroup

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/chatd/chatd/cgroup/cgroupfs"
	"github.com/chatd/chatd/chat"
)

const (
	modeV2 = "cgroup v2"
	modeV1 = "cgroup v1 (legacy)"
)

// Options say where and how a backend works.
type Options struct {
	// Name is the directory made below this process's own cgroup, "chatd". With systemd it is the
	// slice, without ".slice", and the first part of every unit: chatd.slice and chatd-<id>.service.
	// A hyphen becomes an underscore in the slice, where it would mean a slice inside another
	// (systemd.slice(5)).
	Name string
	// StateFile keeps the base directories in use of cgroupfs, so that a chatd that is started
	// again from another cgroup finds its sessions. Its directory must be there and
	// root's. Empty keeps nothing.
	StateFile string
	// PAM is the service name under /etc/pam.d that the units of sessions open; empty is none.
	PAM string
	// Dirs are the directories on whose disks block I/O is bounded.
	Dirs []string
	// Without names limits that are not set. It is for tests, which show by it that
	// a probe can fail.
	Without []chat.LayerName
}

// FS is the cgroupfs backend. Its methods may be called at the same time; those
// that change one chat wait for each other. [Units] is the other one.
type FS struct {
	o      Options
	mode   string
	bases  bases
	legacy legacy   // nil under cgroup v2
	base   *os.File // holds the lock
	// beside is the cgroup2 directory that the front's is in; empty, crowded says why there is
	// none.
	beside  string
	crowded error
	// units is set where the directory of a chat is that of its unit.
	units bool

	locks chatLocks
	mu    sync.Mutex
	dead  map[string]bool // directories of runs in which cgroup.kill was written
	// births is the last start of a chat with a CPU quota, under cgroup v2.
	births map[chat.ID]birth
	// lent is when the quota of a chat was last lifted for a run that dies slowly.
	lent map[chat.ID]time.Time
	// limits are the last limits of each chat.
	limits map[chat.ID]chat.Limits
	// removed are hits of limits: see removedHits.
	removed map[chat.ID]uint64
	gates   map[chat.ID]*gate
}

// newFS knows of no chat yet.
func newFS(o Options) *FS {
	return &FS{
		o: o, dead: map[string]bool{}, births: map[chat.ID]birth{},
		lent: map[chat.ID]time.Time{}, limits: map[chat.ID]chat.Limits{}, removed: map[chat.ID]uint64{},
		gates: map[chat.ID]*gate{},
	}
}

// newUnitsFS is one whose chats are units below the slice at dir, under cgroup v2.
func newUnitsFS(o Options, dir string) *FS {
	f := newFS(o)
	f.mode, f.units = modeV2, true
	f.bases = bases{Mode: modeV2, Unified: dir}
	return f
}

// OpenFS finds the cgroups of the host and makes the base directories. Where this process's own
// cgroup is in the way of giving controllers to children, the process moves to the leaf
// <own>/<Name>.daemon. Anybody else's is left alone. The error is [chat.ErrUnsupported], and says
// what to mount or enable, when the host has neither mode; [chat.ErrBusy] when other processes are
// in the way or another daemon holds the base. The caller closes it.
func OpenFS(o Options) (*FS, error) {
	if err := chat.CheckName("cgroup name", o.Name); err != nil {
		return nil, err
	}
	h, err := readHost()
	if err != nil {
		return nil, err
	}
	f := newFS(o)
	if f.mode, err = h.mode(); err != nil {
		return nil, err
	}
	old, err := loadBases(o.StateFile)
	if err != nil {
		return nil, err
	}
	f.bases = h.findBases(o.Name, f.mode).reuse(old, o.Name)
	f.beside = f.bases.own()
	if err := f.createBase(); err != nil {
		return nil, err
	}
	if err := f.holdBase(); err != nil {
		return nil, err
	}
	if f.mode == modeV1 {
		f.legacy = f.bases.Legacy
	}
	if err := f.bases.save(o.StateFile); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// Mode is "cgroup v2" or "cgroup v1 (legacy)".
func (f *FS) Mode() string { return f.mode }

// IDs lists the chats that have a tree, in no order. A tree that is not named like a chat is not
// chatd's and is left out.
func (f *FS) IDs() ([]chat.ID, error) {
	names, err := cgroupfs.Below(f.bases.Unified)
	var ids []chat.ID
	for _, name := range names {
		if id, ok := f.idOf(name); ok {
			ids = append(ids, id)
		}
	}
	return ids, err
}

func (f *FS) without(l chat.LayerName) bool { return slices.Contains(f.o.Without, l) }

// lock makes callers wait that change the same chat, and no others. It is not held while
// somebody waits for a process of the chat.
func (f *FS) lock(id chat.ID) *chatLock { return f.locks.lock(id) }

// checkID stands between a string and a path: an id that is not of the one form
// could be one. A probe's has its prefix before it.
func checkID(id chat.ID) error {
	_, err := chat.ParseID(strings.TrimPrefix(string(id), probePrefix))
	return err
}

// checkRun accepts a name that cannot be a path and, having no dot, none of the
// kernel's files.
func checkRun(run string) error {
	ok := run != "" && run != "tasks" && len(run) <= chat.MaxName
	for i := 0; ok && i < len(run); i++ {
		c := run[i]
		ok = c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c == '-'
	}
	if !ok {
		return chat.Invalid("cannot use %s as a run: want 1 to %d of A-Z a-z 0-9 _ -", chat.Quote(run),
			chat.MaxName)
	}
	return nil
}

// dir is a directory of the chat in the cgroup2 tree.
func (f *FS) dir(id chat.ID, leaf ...string) string {
	return filepath.Join(append([]string{f.bases.Unified, f.group(id)}, leaf...)...)
}

// group is the name of the chat's cgroup: its id, or what its unit is called.
func (f *FS) group(id chat.ID) string {
	if f.units {
		return unitName(f.o.Name, id)
	}
	return string(id)
}

// idOf is the chat whose cgroup has this name.
func (f *FS) idOf(name string) (chat.ID, bool) {
	bare := name
	if f.units {
		bare = strings.TrimPrefix(strings.TrimSuffix(name, unitSuffix), f.o.Name+"-")
	}
	id, err := chat.ParseID(bare)
	return id, err == nil && f.group(id) == name
}
