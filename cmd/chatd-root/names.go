package main

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"log/slog"
	"os/user"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/config"
	"github.com/chatd/chatd/provision/account"
)

// identity is the uid and gid of a process.
type identity struct{ uid, gid uint32 }

// userIdentity is that of a user of this host.
func userIdentity(name string) (identity, error) {
	f, err := entryOf("passwd", name, 4)
	if err != nil {
		return identity{}, err
	}
	uid, uerr := number(f[2])
	gid, gerr := number(f[3])
	return identity{uid, gid}, errors.Join(uerr, gerr)
}

// identityOf returns the user of that name, or an unused uid and gid. Those are from systemd's
// range for services without a user (DynamicUser in systemd.exec(5)), and depend on the state
// directory, so that two daemons have different ones.
func identityOf(log *slog.Logger, process, user, state string) identity {
	if id, err := userIdentity(user); err == nil && id.uid != 0 && id.gid != 0 {
		return id
	}
	const low, high = 61184, 65519
	h := fnv.New32a()
	_, _ = h.Write([]byte(state)) // never fails
	for id := low + h.Sum32()%(high-low); ; id = low + (id-low+1)%(high-low) {
		if _, err := userName(id); err != nil {
			log.Info(process+" has no user of its own and runs as a uid of nobody's", "user",
				user, "uid", id)
			return identity{id, id}
		}
	}
}

// egressIdentity is that of chatd-egress, which is never the front's: the gid tells the sockets of
// chats from all others.
func egressIdentity(log *slog.Logger, cfg config.Config) identity {
	front := identityOf(slog.New(slog.DiscardHandler), "the front", cfg.User, cfg.State)
	for seed := cfg.State + "/egress"; ; seed += "+" {
		if id := identityOf(log, "chatd-egress", cfg.EgressUser, seed); id.gid != front.gid {
			return id
		}
	}
}

// groupIDs is the gid of a group, or none: without the group, only root has its role.
func groupIDs(log *slog.Logger, name string) []uint32 {
	f, err := entryOf("group", name, 3)
	id := uint32(0)
	if err == nil {
		id, err = number(f[2])
	}
	if err != nil {
		log.Warn("nobody but root has the role of this group", "group", name, "why", err)
		return nil
	}
	return []uint32{id}
}

// entryOf asks getent(1) for at least this many fields: os/user without cgo reads the files in /etc
// alone, and entries may come from elsewhere.
func entryOf(database, name string, fields int) ([]string, error) {
	out, err := account.Lookup(context.Background(), database, name)
	if errors.Is(err, chat.ErrBusy) {
		return nil, err
	}
	if err != nil {
		return nil, fmt.Errorf("cannot find %s %s: %w", database, name, chat.ErrNotFound)
	}
	f := strings.Split(strings.TrimSpace(string(out)), ":")
	if len(f) < fields || f[0] != name {
		return nil, fmt.Errorf("cannot read what getent says of %s %s", database, name)
	}
	return f, nil
}

func number(s string) (uint32, error) {
	n, err := strconv.ParseUint(s, 10, 32)
	return uint32(n), err
}

// userName resolves a peer. The files come first: getent costs a fork.
func userName(uid uint32) (string, error) {
	n := strconv.FormatUint(uint64(uid), 10)
	if u, err := user.LookupId(n); err == nil {
		return u.Username, nil
	}
	out, err := account.Lookup(context.Background(), "passwd", n)
	if errors.Is(err, chat.ErrBusy) {
		return "", err
	}
	if err != nil {
		return "", fmt.Errorf("cannot find the name of uid %d: %w", uid, chat.ErrDenied)
	}
	name, _, _ := strings.Cut(string(out), ":")
	return name, nil
}

// bringUp is "ip link set NAME up" (netdevice(7)).
func bringUp(name string) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("cannot bring %s up: %w", name, err)
	}
	defer unix.Close(fd)
	req, err := unix.NewIfreq(name)
	if err == nil {
		req.SetUint16(unix.IFF_UP)
		err = unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, req)
	}
	if err != nil {
		return fmt.Errorf("cannot bring %s up: %w", name, err)
	}
	return nil
}
