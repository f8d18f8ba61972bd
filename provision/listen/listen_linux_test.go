package listen

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/chatd/chatd/chat"
)

func TestListenIsSafeAgainstASecondDaemon(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	l, err := Unix(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Unix(path); !errors.Is(err, chat.ErrBusy) {
		t.Errorf("while one listens: %v", err)
	}
	if c, err := net.Dial("unix", path); err != nil {
		t.Errorf("the first no longer answers: %v", err)
	} else {
		_ = c.Close()
	}
	if err := errors.Join(l.Close(), l.Close()); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket stays: %v", err)
	}
}

// The lock alone keeps a second daemon out, also after the socket was removed.
func TestListenLocksWithoutASocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	l, err := Unix(path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if _, err := Unix(path); !errors.Is(err, chat.ErrBusy) {
		t.Errorf("got %v", err)
	}
}

func TestListenNeverTakesASocketThatAnswers(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	foreign, err := net.Listen("unix", path) // without the lock
	if err != nil {
		t.Fatal(err)
	}
	defer foreign.Close()
	if _, err := Unix(path); !errors.Is(err, chat.ErrBusy) {
		t.Errorf("got %v", err)
	}
	if _, err := os.Lstat(path); err != nil {
		t.Error(err)
	}
}

func TestListenReplacesAStaleSocketAndNothingElse(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "s")
	dead, err := net.ListenUnix("unix", &net.UnixAddr{Name: path})
	if err != nil {
		t.Fatal(err)
	}
	dead.SetUnlinkOnClose(false) // as after kill -9
	_ = dead.Close()
	l, err := Unix(path)
	if err != nil {
		t.Fatal(err)
	}
	fi, err := os.Stat(path)
	if err != nil || fi.Mode().Perm() != 0o660 {
		t.Errorf("mode %v, %v", fi.Mode(), err)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if err := os.WriteFile(path, []byte("data"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Unix(path); !errors.Is(err, chat.ErrExists) {
		t.Errorf("over a file: %v", err)
	}
	ents, err := os.ReadDir(dir)
	if err != nil || len(ents) != 2 { // the file and the lock
		t.Errorf("left behind: %v %v", ents, err)
	}
}

// A successor's socket is not the one that the first made: its Close leaves it.
func TestCloseRemovesOnlyItsOwn(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	l, err := Unix(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	other, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(path); err != nil {
		t.Errorf("the other's socket is gone: %v", err)
	}
}
