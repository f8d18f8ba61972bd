package listen

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

func TestListenIsSafeAgainstASecondDaemon(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	l := must.Get(Unix(path))(t)
	expect.Is(t, expect.Err(Unix(path)), chat.ErrBusy, "while one listens")
	if c, err := net.Dial("unix", path); err != nil {
		t.Errorf("the first no longer answers: %v", err)
	} else {
		_ = c.Close()
	}
	expect.NoError(t, errors.Join(l.Close(), l.Close()))
	expect.Is(t, expect.Err(os.Lstat(path)), os.ErrNotExist, "the socket stays")
}

// The lock alone keeps a second daemon out, also after the socket was removed.
func TestListenLocksWithoutASocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	l := must.Get(Unix(path))(t)
	defer l.Close()
	must.Do(t, os.Remove(path))
	expect.Is(t, expect.Err(Unix(path)), chat.ErrBusy, "got")
}

func TestListenNeverTakesASocketThatAnswers(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	foreign := must.Get(net.Listen("unix", path))(t)
	defer foreign.Close()
	expect.Is(t, expect.Err(Unix(path)), chat.ErrBusy, "got")
	expect.NoError(t, expect.Err(os.Lstat(path)))
}

func TestListenReplacesAStaleSocketAndNothingElse(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "s")
	dead := must.Get(net.ListenUnix("unix", &net.UnixAddr{Name: path}))(t)
	dead.SetUnlinkOnClose(false) // as after kill -9
	_ = dead.Close()
	l := must.Get(Unix(path))(t)
	fi, err := os.Stat(path)
	expect.True(t, err == nil && fi.Mode().Perm() == 0o660, "mode %v, %v", fi.Mode(), err)
	expect.NoError(t, l.Close())
	must.Do(t, os.WriteFile(path, []byte("data"), 0o600))
	expect.Is(t, expect.Err(Unix(path)), chat.ErrExists, "over a file")
	ents, err := os.ReadDir(dir)
	if err != nil || len(ents) != 2 { // the file and the lock
		t.Errorf("left behind: %v %v", ents, err)
	}
}

// A successor's socket is not the one that the first made: its Close leaves it.
func TestCloseRemovesOnlyItsOwn(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	l := must.Get(Unix(path))(t)
	must.Do(t, os.Remove(path))
	other := must.Get(net.Listen("unix", path))(t)
	defer other.Close()
	expect.NoError(t, l.Close())
	if _, err := os.Lstat(path); err != nil {
		t.Errorf("the other's socket is gone: %v", err)
	}
}
