package account

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/chatd/chatd/provision/safefs"
)

// Userdb writes JSON user and group records as drop-ins (userdbd: nss-systemd(8),
// systemd.io/USER_RECORD). They need no lock, change no shared file, cost the same at 10,000
// users, and resolve whether or not systemd runs.
type Userdb struct {
	Dir string // that nss-systemd(8) reads
}

// Name is [UserdbName].
func (u *Userdb) Name() string { return UserdbName }

// userdbEntry is a file, or a link to one where link is set.
type userdbEntry struct {
	name    string
	content []byte
	link    string
}

// userRecord is the part of a JSON user record that chatd sets. locked keeps
// sshd, su and PAM out, also when the chat writes its own authorized_keys.
type userRecord struct {
	UserName      string `json:"userName"`
	UID           uint32 `json:"uid"`
	GID           uint32 `json:"gid"`
	HomeDirectory string `json:"homeDirectory"`
	Shell         string `json:"shell"`
	RealName      string `json:"realName"`
	Locked        bool   `json:"locked"`
	Disposition   string `json:"disposition"`
}

type groupRecord struct {
	GroupName   string `json:"groupName"`
	GID         uint32 `json:"gid"`
	Disposition string `json:"disposition"`
}

// entries returns the account's four entries: a lookup by number needs a file or a link named
// by that number.
func (u *Userdb) entries(a User) ([]userdbEntry, error) {
	usr, err1 := json.Marshal(userRecord{a.Name, a.ID, a.ID, a.Home, nologin, "chat", true, "regular"})
	grp, err2 := json.Marshal(groupRecord{a.Name, a.ID, "regular"})
	if err := errors.Join(err1, err2); err != nil {
		return nil, fmt.Errorf("cannot write the record of %s: %w", a.Name, err)
	}
	number := strconv.FormatUint(uint64(a.ID), 10)
	return []userdbEntry{
		{name: a.Name + ".user", content: usr},
		{name: a.Name + ".group", content: grp},
		{name: number + ".user", link: a.Name + ".user"},
		{name: number + ".group", link: a.Name + ".group"},
	}, nil
}

// Prepare makes the directory with mode 0711: others can look a user up, but cannot list the
// users.
func (u *Userdb) Prepare() error { return safefs.MakeRoot(u.Dir, 0o711) }

// Create writes the entries that differ.
func (u *Userdb) Create(_ context.Context, a User) error {
	entries, err := u.entries(a)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if err := u.write(e); err != nil {
			return fmt.Errorf("cannot write account %s: %w", a.Name, err)
		}
	}
	return nil
}

// write replaces the entry in one step: a reader sees the old one or the new. It does not sync.
// A power cut may lose the entry; reconcile then writes it again from chatd's own record, which
// is durable.
func (u *Userdb) write(e userdbEntry) error {
	if u.same(e) {
		return nil
	}
	target := filepath.Join(u.Dir, e.name)
	if e.link == "" {
		return safefs.ReplaceFile(target, e.content, 0o644)
	}
	return safefs.Replace(target, func(aside string) error { return os.Symlink(e.link, aside) })
}

func (u *Userdb) same(e userdbEntry) bool {
	name := filepath.Join(u.Dir, e.name)
	if e.link != "" {
		got, err := os.Readlink(name)
		return err == nil && got == e.link
	}
	got, err := os.ReadFile(name)
	return err == nil && string(got) == string(e.content)
}

// Drift names the first entry that is not as chatd wrote it.
func (u *Userdb) Drift(a User) (string, error) {
	entries, err := u.entries(a)
	if err != nil {
		return "", err
	}
	for _, e := range entries {
		if !u.same(e) {
			return filepath.Join(u.Dir, e.name) + " is not as chatd wrote it", nil
		}
	}
	return "", nil
}

// Recorded returns the path of the record of each uid that has one, by the name that is the number.
// A host whose accounts are all of useradd may lack the directory: it has no record.
func (u *Userdb) Recorded() (map[uint32]string, error) {
	entries, err := os.ReadDir(u.Dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("cannot list %s: %w", u.Dir, err)
	}
	paths := map[uint32]string{}
	for _, e := range entries {
		number, ok := strings.CutSuffix(e.Name(), ".user")
		uid, err := strconv.ParseUint(number, 10, 32)
		if ok && err == nil {
			paths[uint32(uid)] = filepath.Join(u.Dir, e.Name())
		}
	}
	return paths, nil
}

// Remove removes the entries by number first. Until the name is removed, the account still resolves
// by it, and a crash leaves something to finish from.
func (u *Userdb) Remove(_ context.Context, a User) error {
	entries, err := u.entries(a)
	if err != nil {
		return err
	}
	var errs []error
	for _, e := range slices.Backward(entries) {
		for _, name := range []string{e.name, safefs.AsideName(e.name)} {
			if err := os.Remove(filepath.Join(u.Dir, name)); err != nil && !errors.Is(err, os.ErrNotExist) {
				errs = append(errs, fmt.Errorf("cannot remove account %s: %w", a.Name, err))
			}
		}
	}
	return errors.Join(errs...)
}
