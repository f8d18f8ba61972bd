//go:build linux

// Command bridge is chatd's demonstration, and an example of a webhook bridge. It starts a daemon
// with a temporary state directory, creates two chats under hostile external ids, types into their
// sessions and reads their screens; lets chat A try to get at chat B, the host and the world;
// restarts the daemon with the sessions alive; reaps both chats; and looks for what is left of
// their uids. It ends with 0 only if everything held.
//
// With --break it opens the chats' homes behind the daemon's back first, and
// must then end with 1: a demonstration that cannot fail shows nothing.
//
// It needs root, and runs itself again in a network and a mount namespace of its
// own: the host's packet rules and accounts are not touched. The only address it
// connects to outside is one in a second network namespace that it makes.
//
// # What it does not stop
//
// It shows; the walls are the daemon's.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"time"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/client"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if os.Getenv(insideEnv) == "" {
		os.Exit(inNamespaces())
	}
	if err := demo(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "\ndemo FAILED:", err)
		os.Exit(1)
	}
	fmt.Println("\neverything held")
}

func say(format string, args ...any) { fmt.Printf("== "+format+"\n", args...) }

func demo(ctx context.Context) (err error) {
	began := time.Now()
	h, err := newHost()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, h.close()) }()
	say("starting chatd serve, which tries every wall of this host first")
	if err := h.startDaemon(); err != nil {
		return err
	}
	daemon := client.NewClient(client.ClientOptions{Socket: h.socket})
	defer daemon.Close()
	t := &trial{ctx: ctx, daemon: daemon, host: h}
	for _, step := range []func() error{t.create, t.talk, t.all, t.restart, t.reap} {
		if err := step(); err != nil {
			return err
		}
	}
	say("took %.1f s", time.Since(began).Seconds())
	return nil
}

// create makes two chats as a bridge would on their first messages, twice each: the second call
// finds what the first made.
func (t *trial) create() error {
	for _, external := range []string{"../../etc\n-rf 💬", "+49 170 123 45 67"} {
		began := time.Now()
		c, created, err := t.daemon.Create(t.ctx, chat.Spec{ExternalID: external, Profile: "web"})
		if err != nil || !created {
			return fmt.Errorf("cannot create %q: created %v: %w", external, created, err)
		}
		took := time.Since(began)
		again, created, err := t.daemon.Create(t.ctx, chat.Spec{ExternalID: external, Profile: "web"})
		if err != nil || created || again.ID != c.ID {
			return fmt.Errorf("cannot find %q again: created %v: %w", external, created, err)
		}
		say("POST /v1/chats %q gave user %s, uid %d, with a shell at its prompt, in %d ms", external, c.User, c.UID, took.Milliseconds())
		t.chats = append(t.chats, c)
	}
	t.a, t.b = t.chats[0], t.chats[1]
	return nil
}

// talk types a command into each session and waits until the screen shows its answer.
func (t *trial) talk() error {
	for _, c := range t.chats {
		if err := t.daemon.Input(t.ctx, c.ID, chat.Input{Text: "echo I am $(id -un), $((6*7))", Enter: true}); err != nil {
			return err
		}
		line := fmt.Sprintf("I am %s, 42", c.User)
		if err := t.waitScreen(c.ID, line); err != nil {
			return err
		}
		say("typed into %s, and its screen says: %s", c.User, line)
	}
	return nil
}

func (t *trial) waitScreen(id chat.ID, want string) error {
	var last string
	for range 200 {
		s, err := t.daemon.Screen(t.ctx, id)
		if err != nil {
			return err
		}
		if last = s.Text; strings.Contains(last, want) {
			return nil
		}
		time.Sleep(50 * time.Millisecond)
	}
	return fmt.Errorf("the screen of %s never showed %q but %q", id, want, last)
}

// restart kills the daemon, as a crash would, and starts another.
func (t *trial) restart() error {
	say("kill -9 of chatd, with both sessions alive")
	t.host.killDaemon()
	for _, c := range t.chats {
		if len(pidsOf(c.UID)) < 3 {
			return fmt.Errorf("the session of %s ended with the daemon", c.User)
		}
	}
	if err := t.host.startDaemon(); err != nil {
		return err
	}
	for _, c := range t.chats {
		if err := t.waitScreen(c.ID, fmt.Sprintf("I am %s, 42", c.User)); err != nil {
			return err
		}
		say("chatd is back, and the screen of %s still says what it said", c.User)
	}
	return nil
}

// reap takes the chats away and looks for traces from the host's side.
func (t *trial) reap() error {
	for _, c := range t.chats {
		if err := t.daemon.Reap(t.ctx, c.ID); err != nil {
			return err
		}
		if left := traces(c); len(left) > 0 {
			return fmt.Errorf("left of %s:\n  %s", c.User, strings.Join(left, "\n  "))
		}
		say("DELETE /v1/chats/%s: no process, account, file, cgroup, mount or IPC object of uid %d is left", c.ID, c.UID)
	}
	return nil
}
