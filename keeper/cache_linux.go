package keeper

import (
	"crypto/sha256"
	"maps"
	"sync"
	"time"
)

// treeCache remembers what was found in large trees that no session can write to, as
// /usr, so that not each session's start goes through all of it. What the host's own
// root changes there meanwhile is judged when it is opened.
type treeCache struct {
	mu    sync.Mutex
	trees map[treeKey]foundTree
}

// treeKey is a tree, and by which rules it was looked through.
type treeKey struct {
	dev, root, path string
	agent           string
	rules           [sha256.Size]byte
}

type foundTree struct {
	at     time.Time
	wants  []want
	linked map[inode]wallClass
	links  []string
	looked int
}

// Trees with fewer names are looked through each time, and what was found holds so long.
const (
	largeTree  = 1000
	treeHolds  = 10 * time.Minute
	mostCached = 1000
)

// walk is [walker.base], or what it found before.
func (c *treeCache) walk(k *walker, b *baseMount) error {
	if b.Writable || under(k.order.Home, b.Path) {
		return k.base(b)
	}
	key := treeKey{b.Dev, b.Root, b.Path, k.order.Agent, sha256.Sum256(k.order.Text)}
	c.mu.Lock()
	found, ok := c.trees[key]
	c.mu.Unlock()
	if !ok || time.Since(found.at) > treeHolds {
		own := &walker{wall: k.wall, uid: k.uid, bases: k.bases, linked: map[inode]wallClass{}, looked: k.looked}
		if err := own.base(b); err != nil {
			return err
		}
		found = foundTree{time.Now(), own.wants, own.linked, own.links, own.looked - k.looked}
		if found.looked >= largeTree {
			c.keep(key, found)
		}
	}
	k.wants = append(k.wants, found.wants...)
	k.links = append(k.links, found.links...)
	maps.Copy(k.linked, found.linked)
	k.looked += found.looked
	return nil
}

func (c *treeCache) keep(key treeKey, found foundTree) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.trees) >= mostCached || c.trees == nil {
		c.trees = map[treeKey]foundTree{}
	}
	c.trees[key] = found
}

func (c *treeCache) forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.trees = nil
}
