package hostprobe

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/plan"
	"github.com/chatd/chatd/provision/account"
	"github.com/chatd/chatd/provision/homedir"
	"github.com/chatd/chatd/provision/session"
)

// user is the account of probes.
func (p *Prober) user() account.User {
	return account.User{Name: ID.User(), ID: p.opt.UID,
		Home: filepath.Join(p.opt.HomeParent, string(ID))}
}

// profile is the one that the sessions have.
func (p *Prober) profile() chat.Profile { return p.opt.Profiles[chat.DefaultProfile] }

// own is v with a home and trees of the probes' own. Nothing is open in it of what the profile
// opens: the probe says what the wall of all others does. A denial around that home, which lies
// elsewhere than the chats', closes nothing of it.
func (p *Prober) own(v plan.View) plan.View {
	v.Home, v.Opened, v.PromptFIFO = p.user().Home, plan.Openings{}, ""
	around := func(denied string) bool { return chat.Within(v.Home, denied) }
	v.Denied = slices.DeleteFunc(slices.Clone(v.Denied), around)
	if !p.opt.Units { // with systemd, pam_namespace mounts them
		v.Tmp = filepath.Join(p.opt.TmpParent, ID.User())
		v.VarTmp = filepath.Join(p.opt.VarTmpParent, ID.User())
	}
	return v
}

// trySession starts a session that does nothing but try its walls from inside, and removes it.
func (p *Prober) trySession(ctx context.Context, v plan.View) (found []chat.Layer, err error) {
	if err := p.remove(ctx); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, p.remove(ctx)) }()
	if err := p.create(ctx); err != nil {
		return nil, err
	}
	v.Without = p.opt.Layers.LeftOut()
	return p.tryInside(ctx, v)
}

// create makes what a session needs: a home, private trees, a cgroup, and for systemd, which
// starts a unit of the uid, an account.
func (p *Prober) create(ctx context.Context) error {
	u, profile := p.user(), p.profile()
	if p.opt.Units {
		if err := p.account.Create(ctx, u); err != nil {
			return err
		}
	}
	err := homedir.MakeOwned(p.opt.HomeParent, string(ID), u.ID, p.opt.HomeMode, profile.Skeleton)
	if err == nil {
		err = homedir.MakeInstanceDirs(p.opt.HomeParent, string(ID), u.ID)
	}
	if err != nil {
		return err
	}
	err = errors.Join(homedir.MakeOwned(p.opt.TmpParent, u.Name, u.ID, 0o700, ""),
		homedir.MakeOwned(p.opt.VarTmpParent, u.Name, u.ID, 0o700, ""))
	if err != nil {
		return err
	}
	return p.opt.Groups.Create(ID, profile.Limits)
}

// remove undoes create, also when ctx has ended, and ends what is left of a session.
func (p *Prober) remove(ctx context.Context) error {
	ctx = context.WithoutCancel(ctx)
	u := p.user()
	return errors.Join(p.end(ctx), homedir.RemoveOwned(p.opt.TmpParent, u.Name),
		homedir.RemoveOwned(p.opt.VarTmpParent, u.Name), homedir.RemoveOwned(p.opt.HomeParent, string(ID)),
		p.account.Remove(ctx, u))
}

// end ends every process of the probes by their cgroup, and removes that.
func (p *Prober) end(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, session.StartTimeout)
	defer cancel()
	if err := p.opt.Starter.Kill(ctx, ID, p.opt.UID); err != nil {
		return err
	}
	return p.opt.Groups.Remove(ID)
}

// MakeDir makes a directory on the file system where place is or would be. Programs run from one
// and not from another (/run is noexec on Debian). Its caller removes it.
func MakeDir(place string) (string, error) {
	parent := filepath.Dir(place)
	for ; parent != "/"; parent = filepath.Dir(parent) {
		if _, err := os.Stat(parent); !errors.Is(err, fs.ErrNotExist) {
			break
		}
	}
	dir, err := os.MkdirTemp(parent, "chatd-doctor-")
	if err != nil {
		return "", fmt.Errorf("cannot make a directory to probe in: %w", err)
	}
	if err := os.Chmod(dir, 0o711); err != nil {
		return "", errors.Join(fmt.Errorf("cannot open up %s: %w", dir, err), os.Remove(dir))
	}
	return dir, nil
}
