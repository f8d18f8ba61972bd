package homedir

import (
	"errors"
	"fmt"
	"path"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/sys"
	"github.com/chatd/chatd/provision/safefs"
)

// MakeInstanceDirs makes the directories and links that every home has, unless their names are
// taken. It acts as the chat, so that the chat owns them from the start. A file that the chat
// put in their place stays: it can mislead only the chat. The home is name in parent, as for
// [Inside].
func MakeInstanceDirs(parent, name string, uid uint32) error {
	return Inside(parent, name, uid, func(home int) error {
		for _, rel := range chat.InstanceDirs() {
			if err := makeDirBeneath(home, rel); err != nil {
				return fmt.Errorf("cannot make ~/%s of chat %s: %w", rel, name, err)
			}
		}
		for _, l := range chat.InstanceLinks() {
			if err := makeLinkBeneath(home, l); err != nil {
				return fmt.Errorf("cannot make ~/%s of chat %s: %w", l.Name, name, err)
			}
		}
		return nil
	})
}

// Inside opens the home name in the root-owned parent and calls act as its owner. The name is the
// chat's id.
func Inside(parent, name string, uid uint32, act func(home int) error) error {
	homes, err := unix.Open(parent, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("cannot open %s: %w", parent, err)
	}
	defer unix.Close(homes)
	home, err := safefs.OpenDir(homes, name)
	if err != nil {
		return fmt.Errorf("cannot use the home of chat %s: %w", name, err)
	}
	defer unix.Close(home)
	return sys.AsUID(uid, func() error { return act(home) })
}

// makeDirBeneath makes one directory in an existing parent. A parent that the chat has replaced,
// and a name that is taken, stay as they are.
func makeDirBeneath(home int, rel string) error {
	return beneath(home, rel, func(parent int, name string) error {
		return unix.Mkdirat(parent, name, 0o700)
	})
}

// makeLinkBeneath gives a directory of a home its second name, as the chat. A file of the chat's
// with that name stays.
func makeLinkBeneath(home int, l chat.InstanceLink) error {
	return beneath(home, l.Name, func(parent int, name string) error {
		return unix.Symlinkat(l.Target(), parent, name)
	})
}

// beneath calls act with the parent of rel and its name there. It returns no error that the chat
// caused by a change of its own home.
func beneath(home int, rel string, act func(parent int, name string) error) error {
	parent, err := sys.OpenOnMount(home, path.Dir(rel), unix.O_PATH|unix.O_DIRECTORY)
	if err == nil {
		err = act(parent, path.Base(rel))
		unix.Close(parent)
	}
	for _, own := range []unix.Errno{
		unix.ENOENT, unix.ELOOP, unix.ENOTDIR, unix.EXDEV, unix.EACCES, unix.EEXIST,
	} {
		if errors.Is(err, own) {
			return nil
		}
	}
	return err
}
