package enforce

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/filerules"
	"github.com/chatd/chatd/sys"
)

// session is one session whose rules are session. What stands before mu never changes, and
// may be asked by anybody at any time; a file that is closed says so. The rest is of
// who holds mu.
type session struct {
	initProc initProcess
	pidfd    *os.File
	ns       *os.File               // its mount namespace
	answer   atomic.Pointer[Answer] // what holds; nil until its rules do
	trees    *treeCache
	// causes has the denied names of what has another at which it is closed too.
	causes  atomic.Pointer[map[string]string]
	relink  atomic.Bool // something was made or moved that links of denies may lead through
	note    func(*session) error
	noMasks bool // tests: nothing is covered
	noSwap  bool // tests: as a kernel before 6.5
	// startMasks are what bubblewrap's masks are mounts of.
	startMasks []inode

	mu           sync.Mutex
	closed       bool
	order        Order
	bases        []*baseMount
	baseIDs      []int // bubblewrap's mounts without its masks
	startMaskIDs []int // the ids of its masks
	resumed      bool  // an earlier worker found them
	masks        []maskMount
	buriedMasks  []maskMount // others, below them: nobody gets there
	wall         *ruleWall
	linkTargets  linkTargets
}

// compile compiles the rules of an order, with the present and the earlier targets of links. It
// runs in the session's mount namespace, because links resolve as the session sees them. It reads
// links by name and opens nothing through them.
func compile(o Order, l *linkTargets) (*ruleWall, error) {
	policy, err := filerules.Load(o.File, o.Text)
	if err != nil {
		return nil, err
	}
	// Check reads directories of the host. In the session each open waits for an answer, and while
	// a worker resumes the session nothing answers.
	if err := inOwnNamespace(func() error { return Check(policy, o.Home) }); err != nil {
		return nil, err
	}
	return compileLinks(policy, o, l)
}

// compileLinks is compile for rules that are already in force.
func compileLinks(policy *filerules.Policy, o Order, l *linkTargets) (*ruleWall, error) {
	f := newFollower(l, o.Home)
	rs, err := policy.For(filerules.Scope{Agent: o.Agent, Home: o.Home, Resolve: f.resolve, Before: f.before})
	if err != nil {
		return nil, err
	}
	w := newRuleWall(rs)
	w.denyDirs = f.denyDirs
	for link := range f.links {
		w.addLinkPath(link)
	}
	return w, nil
}

// mounts returns the session's mounts by /proc. At the first call they are bubblewrap's.
func (s *session) mounts() ([]sys.Mount, error) {
	var text []byte
	err := inOwnNamespace(func() (err error) { // the session has a /proc of its own
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
// it covers the others.
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
		fd, err := openBeneath(root, strings.TrimPrefix(l.Path, "/"), unix.O_PATH)
		if gone(err) {
			continue // covered by another mount
		}
		if err != nil {
			return fmt.Errorf("cannot open the mount %s: %w", l.Path, err)
		}
		st, err := statFD(fd)
		if err == nil && st.Mnt_id != uint64(l.ID) {
			err = errors.New("it is covered")
		}
		b := &baseMount{Mount: l, tree: -1, top: fd, handles: -1, dir: st.Mode&unix.S_IFMT == unix.S_IFDIR, inode: inodeOf(&st)}
		if err == nil {
			b.tree, err = openBase(fd)
		}
		if err == nil && b.dir && !s.resumed { // opens of a resumed session would wait
			b.handles, _ = openBeneath(fd, "", unix.O_RDONLY|unix.O_DIRECTORY) // -1 if that fails
		}
		if err != nil {
			b.close()
			return fmt.Errorf("cannot open the mount %s: %w", l.Path, err)
		}
		s.bases = append(s.bases, b)
	}
	slices.SortFunc(s.bases, func(a, b *baseMount) int { return sys.ComparePaths(a.Path, b.Path) })
	return nil
}

// maxRewalks bounds the further walks when files move during a walk.
const maxRewalks = 20

// apply applies the rules of order o, which may differ from the present ones. It runs on a thread
// in the session's mount namespace.
func (s *session) apply(o Order, masks maskPair, procFD int, watch *watch) error {
	changed := s.wall != nil && (!bytes.Equal(o.Text, s.order.Text) || o.Agent != s.order.Agent || o.Home != s.order.Home)
	wall, err := s.wall, error(nil)
	switch {
	case wall == nil || changed:
		wall, err = compile(o, &s.linkTargets)
		s.linkTargets.Added = 0
	case s.relink.Swap(false) && s.linksMoved():
		wall, err = compileLinks(wall.rules.Policy(), o, &s.linkTargets)
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
	if err := watch.begin(s, wall, changed); err != nil {
		return err
	}
	if s.wall == nil && s.note != nil {
		// Before the first mount: a later worker could not tell it from bubblewrap's.
		if err := inOwnNamespace(func() error { return s.note(s) }); err != nil {
			return err
		}
	}
	sys.Failpoint("rules.begun")
	looked := 0
	for try := 0; ; try++ {
		looked, err = s.applyMasks(o, wall, !changed, root, masks, procFD, watch)
		if errors.Is(err, errMoved) && try == maxRewalks/2 {
			s.trees.forget() // the moved file may be in a cached tree
		}
		if err == nil || !errors.Is(err, errMoved) || try == maxRewalks {
			break
		}
	}
	if err != nil {
		return err
	}
	sys.Failpoint("rules.covered")
	if err := watch.settle(s, wall, root, procFD); err != nil {
		return err
	}
	sys.Failpoint("rules.settled")
	s.order, s.wall = o, wall
	s.publish(looked)
	return nil
}

// applyMasks walks the trees and mounts the masks that the rules want. looked is the number of
// names that it examined. same: the present masks are of the same rules.
func (s *session) applyMasks(o Order, wall *ruleWall, same bool, root int, masks maskPair, procFD int, watch *watch) (looked int, err error) {
	w := walker{wall: wall, uid: o.UID, order: o, trees: s.trees}
	if wall.any {
		if err := w.find(s.bases); err != nil {
			return 0, err
		}
	}
	s.causes.Store(&w.causes)
	lines, err := s.mounts()
	if err != nil {
		return 0, err
	}
	now := map[uint64]sys.Mount{}
	for _, l := range lines {
		now[uint64(l.ID)] = l
	}
	if wall.any {
		var stay []want
		if same {
			stay = s.currentMasks(now)
		}
		if err := w.fit(s.bases, stay); err != nil {
			return 0, err
		}
	}
	all := slices.Concat(s.masks, s.buriedMasks, s.unrecorded(lines, w.wants, wall.exceptions))
	if s.noMasks {
		w.wants = nil
	}
	m := mounter{root: root, procFD: procFD, sources: masks, mounted: all, bases: w.bases, exceptions: wall.exceptions, noSwap: s.noSwap,
		mark: func(tree int) error { return watch.markMask(o.Chat, tree, procFD) }, forget: watch.forget}
	err = m.apply(w.wants, now)
	s.masks, s.buriedMasks = m.mounted, slices.Collect(maps.Values(m.dropped))
	if err == nil && !same {
		for i := range s.buriedMasks {
			s.buriedMasks[i].class = wallOpen // the new rules remove it once it can be reached
		}
	}
	return w.looked, err
}

// publish stores the answer to later probes.
func (s *session) publish(looked int) {
	a := Answer{Looked: looked, Later: "fanotify"}
	for _, c := range s.masks {
		switch {
		case c.class == c.parent: // a submount inside a mask
		case c.isException():
			a.Exceptions++
		case c.class == wallClosed:
			a.Masks++
		default:
			a.ReadOnly++
		}
	}
	s.answer.Store(&a)
}
