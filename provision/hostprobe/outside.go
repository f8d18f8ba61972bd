package hostprobe

import (
	"context"
	"path/filepath"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/provision/account"
	"github.com/chatd/chatd/provision/homedir"
	"github.com/chatd/chatd/provision/layers"
)

// ChooseAccount picks the backend of new accounts: the one that config names, or with auto userdb
// if the host resolves a record that is written now, else useradd.
func (p *Prober) ChooseAccount(
	ctx context.Context, config string, userdb *account.Userdb, useradd *account.Useradd,
) (account.Backend, error) {
	p.account = userdb
	switch config {
	case account.UseraddName:
		p.account = useradd
		return p.account, nil
	case account.UserdbName, "auto", "":
	default:
		return nil, chat.Invalid("cannot use account backend %q: want auto, userdb or useradd", config)
	}
	if err := userdb.Prepare(); err != nil && !layers.CannotTell(err) {
		return nil, err
	}
	err := account.Try(ctx, userdb, p.opt.UID)
	p.tried = &err
	if err == nil || config == account.UserdbName || layers.CannotTell(err) {
		return p.account, nil // where the host could not be tried, the layer reports it
	}
	p.opt.Log.Warn("userdb records are not resolved here, using useradd", "why", err)
	p.account, p.tried = useradd, nil
	return p.account, nil
}

func (p *Prober) accountLayer(ctx context.Context) chat.Layer {
	var err error
	if p.tried != nil {
		err, p.tried = *p.tried, nil
	} else {
		err = account.Try(ctx, p.account, p.opt.UID)
	}
	if p.opt.Layers.Without(chat.LayerAccount) {
		err = layers.ErrLeftOut
	}
	other := layers.NoRoom(err) &&
		p.tryOn(func(u account.User) error { return account.Verify(ctx, u) })
	return layers.Account(p.account.Name(), err, other)
}

// homeLayer makes a home for one uid, and tries as another to enter it and to list the homes.
func (p *Prober) homeLayer() chat.Layer {
	err := homedir.Try(p.opt.Homes, p.opt.UID, p.opt.HomeMode)
	other := layers.NoRoom(err) && p.tryOn(func(u account.User) error {
		return homedir.TryToEnter(p.opt.Homes, filepath.Base(u.Home), p.opt.UID)
	})
	return layers.Home(err, other)
}

// tryOn reports whether try succeeds on a chat that is there. Several are tried, because one may
// be half made.
func (p *Prober) tryOn(try func(account.User) error) bool {
	for _, u := range p.opt.Chats() {
		if try(u) == nil {
			return true
		}
	}
	return false
}

// diskTried is the directory that a try makes and removes. Homes are named by ids, and the private
// trees by users.
const diskTried = string(ID)

// diskLayer writes over a quota on each file system that enforces them.
func (p *Prober) diskLayer() chat.Layer {
	if p.opt.Layers.Without(chat.LayerDisk) {
		return layers.Disk(nil, nil, layers.ErrLeftOut)
	}
	tried, err := p.opt.Disks.Try(diskTried, p.opt.UID)
	return layers.Disk(tried, p.opt.Disks.Unbounded(), err)
}
