package roottest

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/provision"
	"github.com/chatd/chatd/state"
)

// testUIDs lie above chatd's default range, so that a production chatd on this
// machine and the tests never meet.
var testUIDs = state.Range{Low: 2013265920, High: 2013396991}

// peerV4 and peerV6 are addresses that only a test's own peer namespace has.
var peerV4 = netip.MustParseAddr("10.213.0.2")

var worlds atomic.Uint64

// options is a host directory of its own for one daemon.
func options(t testing.TB) provision.Options {
	dir := fmt.Sprintf("/srv/w%d", worlds.Add(1))
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return provision.Options{
		State: filepath.Join(dir, "state"), Run: filepath.Join(dir, "run"), Homes: filepath.Join(dir, "homes"),
		Userdb: "/etc/userdb", Shim: programs.shim, UIDs: testUIDs, LandlockABI: 2,
		Profiles: profiles(), Version: "test", Log: slog.New(slog.NewTextHandler(testWriter{t}, &slog.HandlerOptions{Level: slog.LevelWarn})),
	}
}

func profiles() map[string]chat.Profile {
	commands := []string{"*"}
	allow, err := chat.ParseAllow(peerV4.String() + ":8000")
	if err != nil {
		panic(err)
	}
	return map[string]chat.Profile{
		"default": {Name: "default", Limits: chat.DefaultLimits(), Commands: commands},
		"web":     {Name: "web", Limits: chat.DefaultLimits(), Commands: commands, Egress: []chat.Allow{allow}},
	}
}

type testWriter struct{ t testing.TB }

func (w testWriter) Write(b []byte) (int, error) {
	w.t.Logf("%s", strings.TrimSpace(string(b)))
	return len(b), nil
}

// open starts a Manager that is closed, with its chats reaped, at the end.
func open(t testing.TB, opt provision.Options) *provision.Manager {
	t.Helper()
	needsRoot(t)
	m, err := provision.Open(t.Context(), opt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx := operator(context.Background())
		page, err := m.List(ctx, chat.Filter{Limit: 1000})
		if err != nil {
			t.Error(err)
		}
		for _, c := range page.Chats {
			if err := m.Reap(ctx, c.ID); err != nil {
				t.Error(err)
			}
		}
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	})
	return m
}

func operator(ctx context.Context) context.Context {
	return chat.WithCaller(ctx, chat.Caller{Name: "root", Role: chat.RoleOperator})
}

// create makes a chat of the given profile, awake.
func create(t testing.TB, m *provision.Manager, external, profile string) chat.Chat {
	t.Helper()
	c, _, err := m.Create(operator(t.Context()), chat.Spec{ExternalID: external, Profile: profile})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// run runs a shell command in the chat.
func run(t testing.TB, m *provision.Manager, id chat.ID, command string) chat.RunResult {
	t.Helper()
	r, err := m.Run(operator(t.Context()), id, chat.RunSpec{Command: command})
	if err != nil {
		t.Fatalf("run %q: %v", command, err)
	}
	return r
}
