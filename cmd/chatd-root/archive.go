package main

import (
	"errors"
	"fmt"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/config"
	"github.com/chatd/chatd/provision"
	"github.com/chatd/chatd/provision/archives"
)

// archiveOptions is the key archive of the config, with the user of its command looked up.
func archiveOptions(a *config.Archive) (*provision.ArchiveOptions, error) {
	if a == nil {
		return nil, nil
	}
	o := &provision.ArchiveOptions{
		Options:    archives.Options{Dir: a.Dir, Command: a.Command, Expire: a.ExpireAfter.D()},
		Recipients: a.Recipients, Identities: a.Identities, Program: a.Program,
	}
	if len(a.Command) == 0 {
		return o, nil
	}
	f, err := entryOf("passwd", a.User, 4)
	if err != nil {
		return nil, chat.Invalid("cannot use archive.user %s: %w", chat.Quote(a.User), err)
	}
	uid, uerr := number(f[2])
	gid, gerr := number(f[3])
	if err := errors.Join(uerr, gerr); err != nil {
		return nil, fmt.Errorf("cannot use archive.user %s: %w", chat.Quote(a.User), err)
	}
	o.UID, o.GID = uid, gid
	return o, nil
}
