package main

import (
	"errors"
	"hash/fnv"
	"log/slog"

	"github.com/chatd/chatd/internal/config"
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
