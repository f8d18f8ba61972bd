//go:build e2e

package vagrant

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/test/must"
)

// user is an ordinary user of the machine, for controls: it has what a chat has
// (a name, a uid, a home, a key in authorized_keys), and may log in.
type user struct {
	name, uid, home string
	key             string // a private key that opens ssh for it
}

// newUser makes the user; it goes, with everything of it, when the test ends.
func newUser(t testing.TB) user {
	t.Helper()
	u := user{name: fmt.Sprintf("e2e%d", externals.Add(1)), home: "/home/e2e-control", key: t.TempDir() + "/key"}
	_, _ = try(timeout, "userdel", "-rf", u.name)
	output(t, "useradd", "-m", "-d", u.home+u.name, "-s", "/bin/bash", u.name)
	u.home += u.name
	t.Cleanup(func() {
		_, _ = try(timeout, "loginctl", "disable-linger", u.name)
		_, _ = try(timeout, "loginctl", "terminate-user", u.name)
		_, _ = try(timeout, "pkill", "-KILL", "-U", u.name)
		if _, err := try(timeout, "userdel", "-rf", u.name); err != nil && !strings.Contains(err.Error(), "mail spool") {
			t.Error(err)
		}
	})
	u.uid = output(t, "id", "-u", u.name)
	output(t, "ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", u.key)
	must.Do(t, os.Mkdir(u.home+"/.ssh", 0o700))
	must.Do(t, os.WriteFile(u.home+"/.ssh/authorized_keys", []byte(content(t, u.key+".pub")+"\n"), 0o600))
	output(t, "chown", "-R", u.name+":", u.home+"/.ssh")
	return u
}

// line is a command line of ssh or sftp as far as the destination, on this machine.
func (u user) line(program, name string, options ...string) []string {
	all := append([]string{program, "-i", u.key, "-o", "BatchMode=yes", "-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null",
		"-o", "LogLevel=ERROR", "-o", "IdentitiesOnly=yes", "-o", "ControlPath=none"}, options...)
	return append(all, name+"@127.0.0.1")
}

// ssh runs a command in a login of the user's.
func (u user) ssh(t testing.TB, command string) string {
	t.Helper()
	line := append(u.line("ssh", u.name), command)
	return output(t, line[0], line[1:]...)
}

// holdLock takes xtables' lock, as a program that edits rules by hand does, until
// the returned function is called.
func holdLock() (release func() error, err error) {
	f, err := os.OpenFile("/run/xtables.lock", os.O_RDONLY|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("cannot open the lock of xtables: %w", err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return nil, errors.Join(fmt.Errorf("cannot take the lock of xtables: %w", err), f.Close())
	}
	return f.Close, nil
}
