package state

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

func TestSecondOpenIsBusy(t *testing.T) {
	s := fresh(t)
	_, err := Open(s.opts)
	wantErr(t, "second Open", err, chat.ErrBusy)
	expect.True(t, err != nil && strings.Contains(err.Error(), filepath.Join(s.opts.Dir, lockName)),
		"error does not name the lock file: %v", err)
	again(t, s)
}

// A chatd that is killed while it starts a program leaves the lock to the child for a moment.
func TestOpenAfterAKilledDaemon(t *testing.T) {
	s := fresh(t)
	child := exec.Command("/bin/cat")
	child.ExtraFiles = []*os.File{s.lock}
	end := must.Get(child.StdinPipe())(t)
	must.Do(t, child.Start())
	must.Do(t, s.Close())
	if held, err := os.Open(s.lock.Name()); err != nil || syscall.Flock(int(held.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil {
		t.Fatalf("control: the child holds no lock: %v", err)
	}
	time.AfterFunc(200*time.Millisecond, func() { _ = end.Close() }) // while Open waits
	open(t, s.opts)
	must.Do(t, child.Wait())
}

// A lock file that is removed and created again does not let a second daemon in: the database has
// its own lock.
func TestRemovedLockIsStillBusy(t *testing.T) {
	s := fresh(t)
	must.Do(t, os.Remove(filepath.Join(s.opts.Dir, lockName)))
	_, err := Open(s.opts)
	wantErr(t, "Open beside a removed lock", err, chat.ErrBusy)
}

func TestFilesArePrivateWhateverTheUmask(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "made", "here")
	defer syscall.Umask(syscall.Umask(0))
	s := open(t, Options{Dir: dir})
	if fi, err := os.Lstat(dir); err != nil || fi.Mode().Perm() != 0o711 {
		t.Errorf("directory: mode %v, %v", fi.Mode(), err)
	}
	for _, name := range []string{lockName, dbName, keyName, auditName} {
		fi, err := os.Lstat(filepath.Join(s.opts.Dir, name))
		if err != nil || fi.Mode() != 0o600 {
			t.Errorf("%s: mode %v, %v", name, fi.Mode(), err)
		}
	}
	_, err := os.Lstat(filepath.Join(s.opts.Dir, keyName+".new"))
	expect.True(t, os.IsNotExist(err), "the key's draft is left: %v", err)
}

func TestKeyIsMadeOnce(t *testing.T) {
	s := fresh(t)
	key := string(s.key)
	if again := again(t, s); string(again.key) != key || len(key) != keySize {
		t.Errorf("the key changed, or has %d bytes", len(key))
	}
	other := fresh(t)
	expect.True(t, string(other.key) != key, "two states have one key")
}

// Each of these makes Open fail, with an error that names the file.
func TestOpenRefusesWhatWasMeddledWith(t *testing.T) {
	chown := func(name string) func(string) error {
		return func(dir string) error { return os.Chown(filepath.Join(dir, name), 65534, 65534) }
	}
	for _, c := range []struct {
		what, names string
		root        bool
		meddle      func(dir string) error
	}{
		{"short key", keyName, false, func(d string) error { return os.Truncate(filepath.Join(d, keyName), keySize-1) }},
		{"long key", keyName, false, func(d string) error { return os.Truncate(filepath.Join(d, keyName), keySize+1) }},
		{"foreign key", keyName, false, func(d string) error {
			return os.WriteFile(filepath.Join(d, keyName), make([]byte, keySize), 0o600)
		}},
		{"lost key", keyName, false, func(d string) error { return os.Remove(filepath.Join(d, keyName)) }},
		{"readable key", keyName, false, func(d string) error { return os.Chmod(filepath.Join(d, keyName), 0o640) }},
		{"foreign owner of the key", keyName, true, chown(keyName)},
		{"key behind a link", keyName, false, func(d string) error { return behindLink(d, keyName) }},
		{"log behind a link", auditName, false, func(d string) error { return behindLink(d, auditName) }},
		{"database behind a link", dbName, false, func(d string) error { return behindLink(d, dbName) }},
		{"lock behind a link", lockName, false, func(d string) error { return behindLink(d, lockName) }},
		{"readable database", dbName, false, func(d string) error { return os.Chmod(filepath.Join(d, dbName), 0o644) }},
		{"foreign owner of the log", auditName, true, chown(auditName)},
		{"directory that others may write", "", false, func(d string) error { return os.Chmod(d, 0o777) }},
		{"foreign directory", "", true, chown(".")},
		{"no database", dbName, false, func(d string) error {
			return os.WriteFile(filepath.Join(d, dbName), make([]byte, 65536), 0o600)
		}},
	} {
		t.Run(c.what, func(t *testing.T) {
			if c.root {
				must.Root(t, "changes owners or mounts")
			}
			s := fresh(t)
			must.Do(t, s.Close())
			must.Do(t, c.meddle(s.opts.Dir))
			got, err := Open(s.opts)
			if err == nil {
				t.Fatalf("opened; %v", got.Close())
			}
			if !strings.HasPrefix(err.Error(), "cannot ") || !strings.Contains(err.Error(), filepath.Join(s.opts.Dir, c.names)) {
				t.Errorf("error %q does not begin with cannot or does not name the file", err)
			}
			_, err = os.Lstat(filepath.Join(s.opts.Dir, keyName))
			lost := c.what == "lost key"
			expect.True(t, os.IsNotExist(err) == lost, "key lost %v, yet: %v", lost, err)
		})
	}
}

func behindLink(dir, name string) error {
	path := filepath.Join(dir, name)
	if err := os.Rename(path, path+".real"); err != nil {
		return err
	}
	return os.Symlink(name+".real", path)
}

// A crash between writing the key's draft and renaming it does not stop the next start.
func TestKeyDraftOfACrash(t *testing.T) {
	dir := t.TempDir()
	must.Do(t, os.WriteFile(filepath.Join(dir, keyName+".new"), []byte("half"), 0o600))
	if s := open(t, Options{Dir: dir}); len(s.key) != keySize {
		t.Errorf("key of %d bytes", len(s.key))
	}
}
