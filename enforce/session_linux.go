package enforce

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/enforce/masks"
	"github.com/chatd/chatd/enforce/pathclass"
	"github.com/chatd/chatd/filerules"
	"github.com/chatd/chatd/internal/orders"
	"github.com/chatd/chatd/internal/sys"
)

// session is one session whose rules are session. The fields before mu never change, and any
// goroutine may read them at any time; a file that is closed says so. The rest is of who holds mu.
type session struct {
	e        *enforcer
	initProc initProcess
	process  *sys.ProcessHandle
	ns       *os.File                      // its mount namespace
	answer   atomic.Pointer[orders.Answer] // what holds; nil until its rules do
	// causes has the denied names of what has another at which it is closed too.
	causes atomic.Pointer[map[string]string]
	relink atomic.Bool // something was made or moved that links of denies may lead through
	// startMasks are what bubblewrap's masks are mounts of.
	startMasks []sys.Inode

	mu           sync.Mutex
	closed       bool
	watched      *watchedSession
	order        orders.Order
	bases        []*pathclass.Base
	baseIDs      []int // bubblewrap's mounts without its masks
	startMaskIDs []int // the ids of its masks
	resumed      bool  // an earlier worker found them
	masks        []masks.Mount
	recorded     int           // closed files without a mask
	hiddenMasks  []masks.Mount // others, below them: nobody gets there
	wall         *pathclass.Wall
	linkTargets  pathclass.Links
}

// mounts returns the session's mounts by /proc. At the first call they are bubblewrap's.
func (s *session) mounts() ([]sys.Mount, error) {
	var text []byte
	err := sys.InOwnNamespace(func() (err error) { // the session has a /proc of its own
		text, err = os.ReadFile(fmt.Sprintf("/proc/%d/mountinfo", s.initProc.pid))
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("cannot read the session's mounts: %w", err)
	}
	if s.ended() {
		return nil, errors.New("the session has ended")
	}
	return sys.ParseMounts(string(text))
}

// kernelTypes are file systems whose files the kernel makes.
var kernelTypes = []string{"proc", "sysfs", "devpts", "devtmpfs", "mqueue", "cgroup", "cgroup2"}

// openBases opens each of bubblewrap's mounts. Of several mounts at one path only the last counts:
// it hides the others.
func (s *session) openBases(root int) error {
	lines, err := s.mounts()
	if err != nil {
		return err
	}
	if !s.resumed {
		for _, l := range lines {
			if s.isStartMask(root, l) {
				s.startMaskIDs = append(s.startMaskIDs, l.ID)
			} else {
				s.baseIDs = append(s.baseIDs, l.ID)
			}
		}
	}
	last := map[string]int{}
	for _, l := range lines {
		if slices.Contains(s.baseIDs, l.ID) {
			last[l.Path] = l.ID
		}
	}
	for _, l := range lines {
		inKernel := !filerules.Enforced(l.Path)
		if last[l.Path] != l.ID || inKernel || slices.Contains(kernelTypes, l.Kind) {
			continue
		}
		fd, st, err := sys.OpenPath(root, l.Path)
		if sys.Gone(err) {
			continue // hidden by another mount
		}
		if err == nil && st.Mnt_id != uint64(l.ID) {
			err = errors.New("another mount hides it")
		}
		b := &pathclass.Base{Mount: l, Tree: -1, Top: fd, Handles: -1,
			Dir: st.Mode&unix.S_IFMT == unix.S_IFDIR, Inode: sys.InodeOf(&st)}
		if err == nil {
			b.Tree, err = masks.CopyBase(fd)
		}
		if err == nil && b.Dir && !s.resumed { // opens of a resumed session would wait
			b.Handles, _ = sys.OpenBeneath(fd, "", unix.O_RDONLY|unix.O_DIRECTORY) // -1 if that fails
		}
		if err != nil {
			b.Close()
			return fmt.Errorf("cannot open the mount %s: %w", l.Path, err)
		}
		s.bases = append(s.bases, b)
	}
	slices.SortFunc(s.bases, func(a, b *pathclass.Base) int { return sys.ComparePaths(a.Path, b.Path) })
	return nil
}

// maxRewalks bounds the further walks when files move during a walk.
const maxRewalks = 20

// sourceOf has what an order says of the rules.
func sourceOf(o orders.Order) pathclass.Source {
	return pathclass.Source{Rules: o.Rules, Agent: o.Agent, Home: o.Home}
}

// apply applies the rules of order o, which may differ from the present ones. It runs on a thread
// in the session's mount namespace.
func (s *session) apply(o orders.Order) error {
	changed := s.wall != nil &&
		(!bytes.Equal(o.Rules, s.order.Rules) || o.Agent != s.order.Agent || o.Home != s.order.Home)
	wall, err := s.wall, error(nil)
	switch {
	case wall == nil || changed:
		wall, err = pathclass.Compile(sourceOf(o), &s.linkTargets)
		s.linkTargets.Added = 0
	case s.relink.Swap(false) && s.wall.LinksMoved(&s.linkTargets, s.order.Home):
		wall, err = wall.Relink(sourceOf(o), &s.linkTargets)
	}
	if err != nil {
		return err
	}
	sys.Failpoint("rules.compiled")
	root, err := unix.Open("/", unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("cannot open the session's root: %w", err)
	}
	defer unix.Close(root)
	if s.bases == nil {
		if err := s.openBases(root); err != nil {
			return err
		}
	}
	sys.Failpoint("rules.bases")
	if err := s.e.watch.begin(s, wall, changed); err != nil {
		return err
	}
	if s.wall == nil {
		// Before the first mount: a later worker could not tell it from bubblewrap's.
		if err := sys.InOwnNamespace(func() error { return s.e.save(s) }); err != nil {
			return err
		}
	}
	sys.Failpoint("rules.begun")
	looked := 0
	for try := 0; ; try++ {
		looked, err = s.applyMasks(o, wall, !changed, root)
		if errors.Is(err, masks.ErrMoved) && try == maxRewalks/2 {
			s.e.trees.Forget() // the moved file may be in a cached tree
		}
		if err == nil || !errors.Is(err, masks.ErrMoved) || try == maxRewalks {
			break
		}
	}
	if err != nil {
		return err
	}
	sys.Failpoint("rules.covered")
	if err := s.e.watch.switchRules(s, wall, root); err != nil {
		return err
	}
	sys.Failpoint("rules.settled")
	s.order, s.wall = o, wall
	s.publish(looked)
	return nil
}

// applyMasks walks the trees and mounts the masks that the rules want. looked is the number of
// names that it examined. same: the present masks are of the same rules.
func (s *session) applyMasks(
	o orders.Order, wall *pathclass.Wall, same bool, root int,
) (looked int, err error) {
	watch := s.e.watch
	w := pathclass.Walker{Wall: wall, UID: o.UID, Source: sourceOf(o), Cache: &s.e.trees}
	s.recorded = 0
	w.Close = func(b *pathclass.Base, dir int, name, by string) error {
		s.recorded++
		return watch.recordFound(s.watched, b, dir, name, by)
	}
	if wall.Any {
		if err := w.Find(s.bases); err != nil {
			return 0, err
		}
	}
	s.causes.Store(&w.Causes)
	lines, err := s.mounts()
	if err != nil {
		return 0, err
	}
	now := map[uint64]sys.Mount{}
	for _, l := range lines {
		now[uint64(l.ID)] = l
	}
	if wall.Any {
		var stay []pathclass.Place
		if same {
			stay = s.currentMasks(now)
		}
		if err := w.Fit(s.bases, stay); err != nil {
			return 0, err
		}
	}
	all := slices.Concat(s.masks, s.hiddenMasks, s.unrecorded(lines, w.Wants, wall.Exceptions))
	if s.e.noMasks {
		w.Wants = nil
	}
	m := masks.Mounter{Root: root, ProcFD: watch.procFD, Sources: s.e.masks, Mounted: all, Bases: s.bases,
		Exceptions: wall.Exceptions, NoSwap: s.e.noSwap,
		Mark: func(tree int) error { return watch.markFD(s.watched, tree) }, Forget: watch.forget}
	err = m.Apply(w.Wants, now)
	s.masks, s.hiddenMasks = m.Mounted, slices.Collect(maps.Values(m.Dropped))
	if err == nil && !same {
		for i := range s.hiddenMasks {
			s.hiddenMasks[i].Class = filerules.Open // the new rules remove it once it can be reached
		}
	}
	return w.Looked, err
}

// publish stores the answer to later probes.
func (s *session) publish(looked int) {
	a := orders.Answer{Looked: looked, Later: "fanotify", Masks: s.recorded}
	for _, b := range s.bases {
		if b.Writable && b.Dir && !b.Watched {
			a.Later += ", without names below " + b.Path
		}
	}
	for _, c := range s.masks {
		switch {
		case c.Class == c.Parent: // a submount inside a mask
		case c.IsException():
			a.Exceptions++
		case c.Class == filerules.Closed:
			a.Masks++
		default:
			a.ReadOnly++
		}
	}
	s.answer.Store(&a)
}
