package account

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/moby/sys/user"

	"github.com/chatd/chatd/chat"
)

// CheckRange refuses a range that overlaps a user, a group or a subordinate range of the
// host. useradd(8) does not check the latter (shadow#525), and chatd's packet rules and
// removals match by uid.
func CheckRange(low, high uint32) error {
	if low < 1<<16 || high <= low || high-low < 32 || high >= 1<<31 {
		return chat.Invalid("cannot use uids %d-%d: want at least 33 of them within 65536-2147483647", low,
			high)
	}
	own := func(name string) bool { return strings.HasPrefix(name, chat.UserPrefix) }
	in := func(id int) bool { return id >= int(low) && id <= int(high) }
	users, err := user.ParsePasswdFileFilter("/etc/passwd", func(u user.User) bool {
		return (in(u.Uid) || in(u.Gid)) && !own(u.Name)
	})
	if err != nil {
		return fmt.Errorf("cannot read the host's users: %w", err)
	}
	groups, err := user.ParseGroupFileFilter("/etc/group", func(g user.Group) bool {
		return in(g.Gid) && !own(g.Name)
	})
	if err != nil {
		return fmt.Errorf("cannot read the host's groups: %w", err)
	}
	var met []string
	for _, u := range users {
		met = append(met, "user "+u.Name+" in /etc/passwd")
	}
	for _, g := range groups {
		met = append(met, "group "+g.Name+" in /etc/group")
	}
	sub, err := subordinates(low, high)
	if met = append(met, sub...); len(met) > 0 {
		return chat.Invalid("cannot use uids %d-%d: they meet %s; set uids to a free range", low, high,
			strings.Join(met, ", "))
	}
	return err
}

func subordinates(low, high uint32) ([]string, error) {
	var met []string
	for _, file := range []string{"/etc/subuid", "/etc/subgid"} {
		ranges, err := user.ParseSubIDFileFilter(file, func(s user.SubID) bool {
			return s.SubID <= int64(high) && s.SubID+s.Count > int64(low)
		})
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, fmt.Errorf("cannot read %s: %w", file, err)
		}
		for _, s := range ranges {
			met = append(met, fmt.Sprintf("%s's %d-%d in %s", s.Name, s.SubID, s.SubID+s.Count-1, file))
		}
	}
	return met, nil
}
