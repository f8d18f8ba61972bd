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

// kept is one session whose rules are kept. What stands before mu never changes, and
// may be asked by anybody at any time; a file that is closed says so. The rest is of
// who holds mu.
type kept struct {
	leader leader
	pidfd  *os.File
	ns     *os.File               // its mount namespace
	answer atomic.Pointer[Answer] // what holds; nil until its rules do
	trees  *treeCache
	// because has the denied names of what has another at which it is closed too.
	because atomic.Pointer[map[string]string]
	relink  atomic.Bool // something was made or moved that links of denies may lead through
	bare    bool        // tests: nothing is covered
	noSwap  bool        // tests: as a kernel before 6.5
	// startMasks are what bubblewrap's masks are mounts of.
	startMasks []inode

	mu     sync.Mutex
	closed bool
	order  Order
	bases  []*baseMount
	known  []int // the ids of bubblewrap's mounts, also those without files, but for its masks
	masked []int // the ids of its masks
	taken  bool  // an earlier worker found them
	covers []cover
	buried []cover // others, below them: nobody gets there
	wall   *ruleWall
	led    led
}

// compile makes the rules of an order a wall. It is called where the session's links
// lead as the session sees them: they are read by name, and nothing is opened by what
// they say. What they led to before is in it, too.
func compile(o Order, l *led) (*ruleWall, error) {
	policy, err := filerules.Load(o.File, o.Text)
	if err != nil {
		return nil, err
	}
	// It looks into directories of the host. In the session each open is asked about, and while
	// a worker takes it up nobody answers.
	if err := elsewhere(func() error { return Check(policy, o.Home) }); err != nil {
		return nil, err
	}
	return compileLinks(policy, o, l)
}

// compileLinks is compile for rules that hold already.
func compileLinks(policy *filerules.Policy, o Order, l *led) (*ruleWall, error) {
	f := newFollower(l, o.Home)
	rs, err := policy.For(filerules.Scope{Agent: o.Agent, Home: o.Home, Resolve: f.resolve, Before: f.before})
	if err != nil {
		return nil, err
	}
	w := newRuleWall(rs)
	w.asked = f.asked
	for link := range f.ways {
		w.passes(link)
	}
	return w, nil
}

// mounts are the session's mounts by /proc: those of bubblewrap at the first call.
func (k *kept) mounts() ([]sys.Mount, error) {
	var text []byte
	err := elsewhere(func() (err error) { // the session has a /proc of its own
		text, err = os.ReadFile(fmt.Sprintf("/proc/%d/mountinfo", k.leader.pid))
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("cannot read the session's mounts: %w", err)
	}
	if k.ended() {
		return nil, errors.New("the session has ended")
	}
	return sys.ParseMounts(string(text))
}

// kernelTypes are file systems without files that anybody put there.
var kernelTypes = []string{"proc", "sysfs", "devpts", "devtmpfs", "mqueue", "cgroup", "cgroup2"}

// openBases opens each mount of bubblewrap's alone. Of several at one place the last
// counts: nobody sees the others.
func (k *kept) openBases(root int) error {
	lines, err := k.mounts()
	if err != nil {
		return err
	}
	if !k.taken {
		for _, l := range lines {
			if k.isStartMask(root, l) {
				k.masked = append(k.masked, l.ID)
			} else {
				k.known = append(k.known, l.ID)
			}
		}
	}
	last := map[string]int{}
	for _, l := range lines {
		if slices.Contains(k.known, l.ID) {
			last[l.Path] = l.ID
		}
	}
	for _, l := range lines {
		inKernel := !filerules.Kept(l.Path)
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
		st, err := placeOf(fd)
		if err == nil && st.Mnt_id != uint64(l.ID) {
			err = errors.New("it is covered")
		}
		b := &baseMount{Mount: l, tree: -1, top: fd, handles: -1, dir: st.Mode&unix.S_IFMT == unix.S_IFDIR, inode: inodeOf(&st)}
		if err == nil {
			b.tree, err = openBase(fd)
		}
		if err == nil && b.dir && !k.taken { // else it is watched already, and nobody answers yet
			b.handles = orNone(openBeneath(fd, "", unix.O_RDONLY|unix.O_DIRECTORY))
		}
		if err != nil {
			b.close()
			return fmt.Errorf("cannot open the mount %s: %w", l.Path, err)
		}
		k.bases = append(k.bases, b)
	}
	slices.SortFunc(k.bases, func(a, b *baseMount) int { return sys.ComparePaths(a.Path, b.Path) })
	return nil
}

// orNone is -1 for what could not be opened.
func orNone(fd int, err error) int {
	if err != nil {
		return -1
	}
	return fd
}

// rewalks is how often a look is taken again when what was found moved meanwhile.
const rewalks = 20

// hold raises the walls of order o, which may have other rules than before. It runs on
// a thread in the session's mount namespace.
func (k *kept) hold(o Order, masks maskPair, procFD int, watch *watch) error {
	changed := k.wall != nil && (!bytes.Equal(o.Text, k.order.Text) || o.Agent != k.order.Agent || o.Home != k.order.Home)
	wall, err := k.wall, error(nil)
	switch {
	case wall == nil || changed:
		wall, err = compile(o, &k.led)
		k.led.Added = 0
	case k.relink.Swap(false) && k.leadsElsewhere():
		wall, err = compileLinks(wall.rules.Policy(), o, &k.led)
	}
	if err != nil {
		return err
	}
	root, err := unix.Open("/", unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("cannot open the session's root: %w", err)
	}
	defer unix.Close(root)
	if k.bases == nil {
		if err := k.openBases(root); err != nil {
			return err
		}
	}
	if err := watch.begin(k, wall, changed); err != nil {
		return err
	}
	looked := 0
	for try := 0; ; try++ {
		looked, err = k.cover(o, wall, !changed, root, masks, procFD, watch)
		if errors.Is(err, errMoved) && try == rewalks/2 {
			k.trees.forget() // perhaps it is in one of those
		}
		if err == nil || !errors.Is(err, errMoved) || try == rewalks {
			break
		}
	}
	if err != nil {
		return err
	}
	if err := watch.settle(k, wall, root, procFD); err != nil {
		return err
	}
	k.order, k.wall = o, wall
	k.tell(looked)
	return nil
}

// cover looks through the trees and brings the covers to what it finds. It says at how
// many names it looked. same: the rules are those by which the covers were laid.
func (k *kept) cover(o Order, wall *ruleWall, same bool, root int, masks maskPair, procFD int, watch *watch) (looked int, err error) {
	w := walker{wall: wall, uid: o.UID, order: o, trees: k.trees}
	if wall.any {
		if err := w.find(k.bases); err != nil {
			return 0, err
		}
	}
	k.because.Store(&w.because)
	lines, err := k.mounts()
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
			stay = k.covered(now)
		}
		if err := w.fit(k.bases, stay); err != nil {
			return 0, err
		}
	}
	all := slices.Concat(k.covers, k.buried, k.unnoted(lines, w.wants, wall.islands))
	if k.bare {
		w.wants = nil
	}
	m := mounter{root: root, procFD: procFD, masks: masks, covers: all, bases: w.bases, islands: wall.islands, noSwap: k.noSwap,
		mark: func(tree int) error { return watch.markCover(o.Chat, tree, procFD) }, forget: watch.forget}
	err = m.apply(w.wants, now)
	k.covers, k.buried = m.covers, slices.Collect(maps.Values(m.dropped))
	if err == nil && !same {
		for i := range k.buried {
			k.buried[i].class = wallOpen // it goes by the new rules, when it can be reached
		}
	}
	return w.looked, err
}

// tell makes what holds now known to who asks.
func (k *kept) tell(looked int) {
	a := Answer{Looked: looked, Later: "fanotify"}
	for _, c := range k.covers {
		switch {
		case c.class == c.parent: // it only comes along
		case c.island():
			a.Islands++
		case c.class == wallClosed:
			a.Masks++
		default:
			a.ReadOnly++
		}
	}
	k.answer.Store(&a)
}
