package main

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/broker"
	"github.com/chatd/chatd/internal/config"
)

// frontOfProgram is a front of another program.
func frontOfProgram(t *testing.T, program string, log *lines) *front {
	t.Helper()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(t.TempDir(), "s"), Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	f, err := newFront(program, l, slog.New(slog.NewTextHandler(log, nil)), broker.ServerOptions{Log: slog.New(slog.DiscardHandler)}, "chatd-test-nobody", t.TempDir(), func(int) error { return nil }, func(error) {})
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// TestFrontTries: chatd-root gives up a front that never answers a caller, with its last error.
func TestFrontTries(t *testing.T) {
	if os.Geteuid() != 0 {
		if os.Getenv("CHATD_TEST_REQUIRE") == "all" {
			t.Fatal("needs root, and CHATD_TEST_REQUIRE=all")
		}
		t.Skip("needs root: the front runs as another user")
	}
	log := &lines{}
	err := frontOfProgram(t, "/bin/false", log).run(t.Context())
	if err == nil || !strings.Contains(err.Error(), "it ended 6 times") || !strings.Contains(err.Error(), "exit status 1") {
		t.Errorf("%v", err)
	}
	if n := log.count("the front ended and is started again"); n != frontTries-1 {
		t.Errorf("the log says %d times that it is started again", n)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := frontOfProgram(t, "/bin/false", log).run(ended); err != nil {
		t.Errorf("told to end: %v", err)
	}
}

// TestFrontWithoutProgram: the error names the missing program.
func TestFrontWithoutProgram(t *testing.T) {
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(t.TempDir(), "s"), Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if _, err := newFront("/none/chatd", l, slog.New(slog.DiscardHandler), broker.ServerOptions{}, "chatd", "", nil, nil); !errors.Is(err, chat.ErrUnsupported) || !strings.Contains(err.Error(), "/none/chatd") {
		t.Errorf("%v", err)
	}
}

// TestIdentity: without a user of its own the front has an unused uid, another for each state
// directory, and never root's.
func TestIdentity(t *testing.T) {
	log := slog.New(slog.DiscardHandler)
	a, b := identityOf(log, "x", "chatd-test-nobody", "/a"), identityOf(log, "x",
		"chatd-test-nobody", "/b")
	if a == b || a != identityOf(log, "x", "chatd-test-nobody", "/a") {
		t.Errorf("%v and %v", a, b)
	}
	for _, i := range []identity{a, b, identityOf(log, "x", "root", "/a")} {
		if i.uid < 61184 || i.uid > 65519 || i.gid != i.uid {
			t.Errorf("%v is not among the uids of services without a user", i)
		}
	}
}

// TestEgressIdentity: chatd-egress and the front are two, also where neither has a user.
func TestEgressIdentity(t *testing.T) {
	log := slog.New(slog.DiscardHandler)
	for _, state := range []string{"/a", "/b", "/c"} {
		cfg := config.Config{User: "chatd-test-nobody", EgressUser: "chatd-test-nobody-either",
			State: state}
		front, egress := identityOf(log, "x", cfg.User, state), egressIdentity(log, cfg)
		if front.uid == egress.uid || front.gid == egress.gid || egress != egressIdentity(log,
			cfg) {
			t.Errorf("%s: %v and %v", state, front, egress)
		}
	}
}
