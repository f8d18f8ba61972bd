package roottest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/test/must"
)

// TestFlushIsMendedImmediately: flushed rules are restored even if the next reconcile is an hour away.
func TestFlushIsMendedImmediately(t *testing.T) {
	opt := options(t)
	opt.Every = time.Hour
	open(t, opt)
	for _, flush := range [][]string{
		{"iptables", "-F"}, {"ip6tables", "-F"}, {"iptables", "-F", "CHATD"},
	} {
		must.Run(t, exec.Command(flush[0], flush[1:]...))
		until(t, fmt.Sprintf("%v is mended", flush), func() bool { return walled(t) })
	}
}

// walled looks for what each of the flushes takes away.
func walled(t *testing.T) bool {
	t.Helper()
	for _, look := range []struct {
		argv []string
		want string
	}{
		{[]string{"iptables", "-S", "OUTPUT"}, "-j CHATD"}, {[]string{"ip6tables", "-S", "OUTPUT"}, "-j CHATD"},
		{[]string{"iptables", "-S", "CHATD"}, "-A CHATD"},
	} {
		out, err := exec.Command(look.argv[0], look.argv[1:]...).CombinedOutput()
		if err != nil && look.argv[0] != "iptables" {
			t.Fatalf("%v: %v: %s", look.argv, err, out)
		}
		if !strings.Contains(string(out), look.want) {
			return false
		}
	}
	return true
}

// TestNothingBeginsAfterAFlush: while flushed rules are not restored, no session and no run begins.
// The test delays the repair.
func TestNothingBeginsAfterAFlush(t *testing.T) {
	opt := options(t)
	opt.Every = time.Hour
	dir := filepath.Dir(opt.State)
	barrier := filepath.Join(dir, "barrier")
	must.Do(t, os.MkdirAll(dir+"/bin", 0o755))
	for _, name := range []string{"iptables-restore", "ip6tables-restore"} {
		real := must.Get(exec.LookPath(name))(t)
		held := fmt.Sprintf("#!/bin/sh\nwhile [ -e %s ]; do sleep 0.05; done\nexec %s \"$@\"\n", barrier, real)
		must.Do(t, os.WriteFile(filepath.Join(dir, "bin", name), []byte(held), 0o755))
	}
	t.Setenv("PATH", dir+"/bin:"+os.Getenv("PATH"))
	m := open(t, opt)
	a, b := create(t, m, "flush a", "default"), asleep(t, m, "flush b")
	ctx := operator(t.Context())
	for _, flush := range [][]string{{"iptables", "-F"}, {"nft", "flush", "ruleset"}, {"iptables", "-I", "OUTPUT", "1", "-j", "ACCEPT"}} {
		must.Do(t, os.WriteFile(barrier, nil, 0o600))
		must.Run(t, exec.Command(flush[0], flush[1:]...))
		var run error
		until(t, fmt.Sprintf("%v is noticed", flush), func() bool { // the kernel tells immediately, but chatd may wait for a CPU
			_, run = m.Run(ctx, a.ID, chat.RunSpec{Command: "true"})
			return run != nil
		})
		_, wake := m.Wake(ctx, b.ID)
		must.Do(t, os.Remove(barrier))
		for what, err := range map[string]error{"wake": wake, "run": run} {
			if !errors.Is(err, chat.ErrBusy) || !strings.Contains(err.Error(), "somebody changed the packet rules") {
				t.Errorf("%s after %v: %v", what, flush, err)
			}
		}
		until(t, fmt.Sprintf("%v is mended", flush), func() bool { return walled(t) && first(t) })
		until(t, "a run begins again", func() bool { _, err := m.Run(ctx, a.ID, chat.RunSpec{Command: "true"}); return err == nil })
	}
}

// first reports that chatd's jump is the first rule of OUTPUT.
func first(t *testing.T) bool {
	t.Helper()
	out, err := exec.Command("iptables", "-S", "OUTPUT", "1").CombinedOutput()
	return err == nil && strings.Contains(string(out), "-j CHATD")
}
