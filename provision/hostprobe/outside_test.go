package hostprobe

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/provision/account"
	"github.com/chatd/chatd/provision/layers"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// TestChooseAccount: auto takes userdb only where the host finds what is written there, which it
// does not in a directory that nss-systemd(8) does not read.
func TestChooseAccount(t *testing.T) {
	must.Root(t, "the directory must be root's")
	var log bytes.Buffer
	p := New(Options{UID: 4000000003, Log: slog.New(slog.NewTextHandler(&log, nil))})
	db, useradd := &account.Userdb{Dir: t.TempDir()}, &account.Useradd{}
	for config, want := range map[string]string{
		"": account.UseraddName, "auto": account.UseraddName, "useradd": account.UseraddName,
		"userdb": account.UserdbName,
	} {
		log.Reset()
		got, err := p.ChooseAccount(t.Context(), config, db, useradd)
		expect.True(t, err == nil && got.Name() == want && p.account == got, "%q: %v, %v", config, got, err)
		said := strings.Contains(log.String(), "using useradd")
		expect.True(t, said == (config == "" || config == "auto"), "%q: the log says %q", config, &log)
	}
	if left, err := os.ReadDir(db.Dir); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
	_, err := p.ChooseAccount(t.Context(), "ldap", db, useradd)
	expect.True(t, errors.Is(err, chat.ErrInvalid), "%v", err)
	link := filepath.Join(t.TempDir(), "link")
	must.Do(t, os.Symlink(db.Dir, link))
	_, err = p.ChooseAccount(t.Context(), "auto", &account.Userdb{Dir: link}, useradd)
	expect.True(t, err != nil, "records were written through a link")
}

// failing is a backend that makes no account.
type failing struct {
	account.Backend
	err   error
	tries int
}

func (f *failing) Name() string { return "failing" }
func (f *failing) Create(context.Context, account.User) error {
	f.tries++
	return f.err
}
func (f *failing) Remove(context.Context, account.User) error { return nil }

// TestAccountLayer: the choice of the backend counts as one try. Without room for an account those
// of chats that are there are looked up.
func TestAccountLayer(t *testing.T) {
	off := &failing{err: errors.New("cannot write")}
	full := &failing{err: unix.ENOSPC}
	set := layers.New(layers.Options{})
	nobody := func() []account.User { return []account.User{{Name: "chat-nobody", ID: 4000000004}} }
	root := func() []account.User {
		return append(nobody(), account.User{Name: "root", ID: 0, Home: "/root"})
	}
	state := func(p *Prober) chat.LayerState { return p.accountLayer(t.Context()).State }
	p := &Prober{opt: Options{Layers: set, Chats: nobody}, account: off, tried: new(error)}
	if got := state(p); got != chat.LayerOn || off.tries > 0 {
		t.Errorf("it was resolved: %s after %d tries", got, off.tries)
	}
	if got := state(p); got != chat.LayerOff || off.tries != 1 {
		t.Errorf("the second time: %s after %d tries", got, off.tries)
	}
	p.account = full
	if got := state(p); got != chat.LayerUnknown {
		t.Errorf("no room: %s", got)
	}
	p.opt.Chats = root
	if got := state(p); got != chat.LayerOn {
		t.Errorf("no room, and a user that resolves: %s", got)
	}
	p.account, p.tried = off, new(error)
	p.opt.Layers = layers.New(layers.Options{Without: []chat.LayerName{chat.LayerAccount}})
	if got := state(p); got != chat.LayerOff {
		t.Errorf("left out: %s", got)
	}
}
