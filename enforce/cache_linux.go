package enforce

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"maps"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/chat"
)

// treeCache remembers what was found in large trees that no session can write to, as
// /usr, so that not each session's start goes through all of it. What the host's own
// root changes there meanwhile is judged when it is opened.
type treeCache struct {
	mu    sync.Mutex
	trees map[treeKey]foundTree
}

// treeKey is a tree, and by which rules it was looked through. Each session has an overlay
// of its own over the same tree; what they are over stands as their source.
type treeKey struct {
	dev, root, path string
	agent           string
	rules           [sha256.Size]byte
}

type foundTree struct {
	at     time.Time
	wants  []want
	linked map[inode]wallClass
	linkAt []string
	links  []string
	looked int
}

// overlaid reports that b is an overlay that chatd made for this session alone.
func (b *baseMount) overlaid() bool {
	return b.Kind == "overlay" && strings.HasPrefix(b.Source, "chatd-")
}

func keyOf(k *walker, b *baseMount) treeKey {
	dev := b.Dev
	if b.overlaid() {
		dev = b.Source
	}
	return treeKey{dev, b.Root, b.Path, k.order.Agent, sha256.Sum256(k.order.Text)}
}

// in is what was found, with the inodes that the same files have in b. What is not there
// any more is left out.
func (f foundTree) in(k *walker, b *baseMount) (foundTree, error) {
	wants := f.wants
	f.wants, f.linked = nil, map[inode]wallClass{}
	for _, w := range wants {
		st, err := statBelow(b, w.path)
		if gone(err) {
			continue
		}
		if err != nil {
			return f, fmt.Errorf("cannot look at %s: %w", chat.Quote(w.path), err)
		}
		w.inode = inodeOf(&st)
		f.wants = append(f.wants, w)
	}
	for _, p := range f.linkAt {
		if st, err := statBelow(b, p); err == nil {
			f.linked[inodeOf(&st)] = max(k.wall.class(p), f.linked[inodeOf(&st)])
		} else if !gone(err) {
			return f, fmt.Errorf("cannot look at %s: %w", chat.Quote(p), err)
		}
	}
	return f, nil
}

func statBelow(b *baseMount, p string) (unix.Statx_t, error) {
	fd, err := openBeneath(b.tree, cmp.Or(rest(p, b.Path), "."), unix.O_PATH)
	if err != nil {
		return unix.Statx_t{}, err
	}
	defer unix.Close(fd)
	return statFD(fd)
}

// Trees with fewer names are looked through each time, and what was found holds so long.
const (
	largeTree = 1000
	treeHolds = 10 * time.Minute
	maxCached = 1000
)

// walk is [walker.base], or what it found before.
func (c *treeCache) walk(k *walker, b *baseMount) error {
	if b.Writable || k.found != nil || under(k.order.Home, b.Path) {
		return k.base(b)
	}
	key := keyOf(k, b)
	c.mu.Lock()
	found, ok := c.trees[key]
	c.mu.Unlock()
	if !ok || time.Since(found.at) > treeHolds {
		own := &walker{wall: k.wall, uid: k.uid, bases: k.bases, linked: map[inode]wallClass{}, looked: k.looked}
		if err := own.base(b); err != nil {
			return err
		}
		found = foundTree{time.Now(), own.wants, own.linked, own.linkAt, own.links, own.looked - k.looked}
		if found.looked >= largeTree {
			c.put(key, found)
		}
	} else if b.overlaid() {
		var err error
		if found, err = found.in(k, b); err != nil {
			return err
		}
	}
	k.wants = append(k.wants, found.wants...)
	k.links = append(k.links, found.links...)
	maps.Copy(k.linked, found.linked)
	k.looked += found.looked
	return nil
}

func (c *treeCache) put(key treeKey, found foundTree) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.trees) >= maxCached || c.trees == nil {
		c.trees = map[treeKey]foundTree{}
	}
	c.trees[key] = found
}

func (c *treeCache) forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.trees = nil
}
