package account

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// slowHost has programs in PATH that never end, and short bounds.
func slowHost(t *testing.T, programs ...string) {
	t.Helper()
	dir := t.TempDir()
	for _, name := range programs {
		script := []byte("#!/bin/sh\nexec /bin/sleep 1234\n")
		must.Do(t, os.WriteFile(filepath.Join(dir, name), script, 0o755))
	}
	t.Setenv("PATH", dir)
	lookup, tool := lookupTimeout, toolTimeout
	lookupTimeout, toolTimeout = 10*time.Millisecond, 10*time.Millisecond
	t.Cleanup(func() { lookupTimeout, toolTimeout = lookup, tool })
}

// TestSilentNameService: where a name service does not answer, each lookup ends with an error that
// says so, may be tried again, and leaves open whether the account resolves.
func TestSilentNameService(t *testing.T) {
	slowHost(t, "getent", "useradd", "groupadd", "userdel", "groupdel")
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	a := User{Name: "chat-of-nobody", ID: 4000000001, Home: "/nonexistent"}
	u := &Userdb{Dir: t.TempDir()}
	useradd := &Useradd{}
	for name, ask := range map[string]func() error{
		"Resolves":       func() error { return Resolves(ctx, a) },
		"Verify":         func() error { return Verify(ctx, a) },
		"Try":            func() error { return Try(ctx, u, a.ID) },
		"Useradd.Create": func() error { return useradd.Create(ctx, a) },
		"Useradd.Remove": func() error { return useradd.Remove(ctx, a) },
	} {
		err := ask()
		expect.True(t, errors.Is(err, chat.ErrBusy) && errors.Is(err, context.DeadlineExceeded),
			"%s: %v, want %v", name, err, chat.ErrBusy)
	}
	expect.True(t, ctx.Err() == nil, "a lookup ended with its caller's time alone")
	if left, err := os.ReadDir(u.Dir); err != nil || len(left) > 0 {
		t.Errorf("Try leaves %v, %v", left, err)
	}
}
