package enforcer

import (
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/orders"
	"github.com/chatd/chatd/internal/plan"
	"github.com/chatd/chatd/internal/sys"
	"github.com/chatd/chatd/provision/safefs"
)

// masksDir holds the empty file and directory that bubblewrap mounts as masks. Chats may pass
// through it: bubblewrap runs as the chat.
func (c *Client) masksDir() string {
	return filepath.Join(filepath.Dir(c.opt.Dir), orders.StartMasks)
}

// MakeMasks makes the sources of masks, beside the enforcer's directory.
func (c *Client) MakeMasks() error {
	if err := safefs.MakeRoot(c.masksDir(), 0o711); err != nil {
		return err
	}
	return orders.MakeMasks(c.masksDir())
}

// Masks returns the mounts by which bubblewrap masks those closed paths that exist now, in a
// session of view v. The enforcer takes them over before any code of the chat runs. Neither depends
// on the other.
//
// No mask hides another mount, which the enforcer would have to look into. It is mounted only in
// trees that no session can write to: elsewhere the enforcer refuses opens, without a mask.
func (c *Client) Masks(v plan.View, closed []string) (all []chat.Exposed) {
	if len(closed) == 0 {
		return nil
	}
	mounts := v.Mounts()
	for _, p := range closed {
		inside := func(mount chat.Mount) bool { return chat.Within(mount.Target, p) }
		if slices.ContainsFunc(mounts, inside) || writable(mounts, p) {
			continue
		}
		dir, ok := maskable(v.HostPath(p))
		if !ok {
			continue
		}
		mask := chat.Exposed{Target: p, Mode: chat.ReadOnly, File: !dir, By: "file rules"}
		mask.Source = filepath.Join(c.masksDir(), orders.ClosedFile)
		if dir {
			mask.Source = filepath.Join(c.masksDir(), orders.ClosedDirectory)
		}
		all = append(all, mask)
	}
	return all
}

// writable reports whether the mount that p lies in can be written to.
func writable(mounts []chat.Mount, p string) bool {
	in := chat.Mount{}
	for _, m := range mounts {
		if chat.Within(p, m.Target) && len(m.Target) >= len(in.Target) {
			in = m
		}
	}
	return in.Mode == chat.ReadWrite
}

// maskable reports whether p is a directory or a regular file, reached by no link.
func maskable(p string) (dir, ok bool) {
	if p == "" || p == "/" {
		return false, false
	}
	fd, err := sys.Openat2(unix.AT_FDCWD, p, &unix.OpenHow{
		Flags:   unix.O_PATH | unix.O_NOFOLLOW | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_NO_SYMLINKS,
	})
	if err != nil {
		return false, false
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if unix.Fstat(fd, &st) != nil {
		return false, false
	}
	kind := st.Mode & unix.S_IFMT
	return kind == unix.S_IFDIR, kind == unix.S_IFDIR || kind == unix.S_IFREG
}
