package pathclass

import (
	"crypto/sha256"
	"fmt"
	"maps"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/filerules"
	"github.com/chatd/chatd/internal/sys"
)

// Cache remembers what was found in large trees that no session can write to, as /usr, so that not
// each session's start goes through all of it. A file that the host's own root changes there
// meanwhile is checked when it is opened.
type Cache struct {
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
	at time.Time
	finds
}

// overlaid reports that b is an overlay that chatd made for this session alone.
func (b *Base) overlaid() bool {
	return b.Kind == "overlay" && strings.HasPrefix(b.Source, "chatd-")
}

func keyOf(k *Walker, b *Base) treeKey {
	dev := b.Dev
	if b.overlaid() {
		dev = b.Source
	}
	return treeKey{dev, b.Root, b.Path, k.Source.Agent, sha256.Sum256(k.Source.Rules)}
}

// in is what was found, with the inodes that the same files have in b. It leaves out what is not
// there any more.
func (f foundTree) in(k *Walker, b *Base) (foundTree, error) {
	wants := f.Wants
	f.Wants, f.linked = nil, map[sys.Inode]filerules.Class{}
	for _, w := range wants {
		st, err := statBelow(b, w.Path)
		if sys.Gone(err) {
			continue
		}
		if err != nil {
			return f, fmt.Errorf("cannot look at %s: %w", chat.Quote(w.Path), err)
		}
		w.Inode = sys.InodeOf(&st)
		f.Wants = append(f.Wants, w)
	}
	for _, p := range f.linkAt {
		if st, err := statBelow(b, p); err == nil {
			f.linked[sys.InodeOf(&st)] = max(k.Wall.Class(p), f.linked[sys.InodeOf(&st)])
		} else if !sys.Gone(err) {
			return f, fmt.Errorf("cannot look at %s: %w", chat.Quote(p), err)
		}
	}
	return f, nil
}

func statBelow(b *Base, p string) (unix.Statx_t, error) {
	fd, st, err := sys.OpenPath(b.Tree, sys.Rest(p, b.Path))
	if err == nil {
		unix.Close(fd)
	}
	return st, err
}

// Trees with fewer names are looked through each time, and what was found holds so long.
const (
	largeTree = 1000
	treeHolds = 10 * time.Minute
	maxCached = 1000
)

// walk is [Walker.base], or what it found before.
func (c *Cache) walk(k *Walker, b *Base) error {
	if b.Writable || k.found != nil || chat.Within(k.Source.Home, b.Path) {
		return k.base(b)
	}
	key := keyOf(k, b)
	c.mu.Lock()
	found, ok := c.trees[key]
	c.mu.Unlock()
	if !ok || time.Since(found.at) > treeHolds {
		own := &Walker{Wall: k.Wall, UID: k.UID, bases: k.bases,
			finds: finds{linked: map[sys.Inode]filerules.Class{}, Looked: k.Looked}}
		if err := own.base(b); err != nil {
			return err
		}
		own.Looked -= k.Looked
		if found = (foundTree{time.Now(), own.finds}); found.Looked >= largeTree {
			c.put(key, found)
		}
	} else if b.overlaid() {
		var err error
		if found, err = found.in(k, b); err != nil {
			return err
		}
	}
	k.Wants = append(k.Wants, found.Wants...)
	k.links = append(k.links, found.links...)
	maps.Copy(k.linked, found.linked)
	k.Looked += found.Looked
	return nil
}

func (c *Cache) put(key treeKey, found foundTree) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.trees) >= maxCached || c.trees == nil {
		c.trees = map[treeKey]foundTree{}
	}
	c.trees[key] = found
}

// Forget drops what it remembers, as of trees that have changed.
func (c *Cache) Forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.trees = nil
}
