package roottest

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chatd/chatd/backup"
	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/provision"
)

// TestRestoredHost backs a host up beside its daemon, goes on, and restores: with the state as it
// was at the end, and without any of it. chatd starts with the younger home, the awake session of
// the backup is as it was, and no uid that was given since is given again.
func TestRestoredHost(t *testing.T) {
	needsRoot(t)
	for what, lost := range map[string][]string{
		"whole": nil, "lost": {"chatd.db", "install.key", "audit.jsonl"},
	} {
		t.Run(what, func(t *testing.T) {
			opt := options(t)
			leaveOrphansToInit(t)
			config := configFile(t, opt)
			d := startDaemon(t, opt, "")
			a, _, err := d.Create(t.Context(), chat.Spec{ExternalID: "a"})
			must(t, err)
			_, err = d.Client.Run(t.Context(), a.ID, chat.RunSpec{Command: "echo before >note"})
			must(t, err)
			// Durable, and with it that the chat is ready: a backup is what a kill would leave.
			_, err = d.AddSchedule(t.Context(), a.ID, chat.ScheduleSpec{
				Every: chat.Duration(30 * time.Minute), Command: "true"})
			must(t, err)
			leader := firstProcess(t, a)
			file := filepath.Join(filepath.Dir(config), "b.tar")
			backedUp := chatdAnswers(t, "backup", "--config", config, "--output", file, "--json")
			if !strings.Contains(backedUp, `"chats": 1`) {
				t.Errorf("backup says %s", backedUp)
			}

			later, _, err := d.Create(t.Context(), chat.Spec{ExternalID: "later"})
			must(t, err)
			reaped, _, err := d.Create(t.Context(), chat.Spec{ExternalID: "reaped"})
			must(t, err)
			must(t, d.Reap(t.Context(), reaped.ID))
			if out, err := exec.Command(programs.chatd, "restore", "--config", config, "--replace", file).CombinedOutput(); err == nil ||
				!strings.Contains(string(out), "another chatd holds it") {
				t.Errorf("beside a daemon: %s, %v", out, err)
			}
			d.kill()
			for _, name := range lost {
				must(t, os.Remove(filepath.Join(opt.State, name)))
			}
			var r backup.Restored
			must(t, json.Unmarshal([]byte(chatdAnswers(t, "restore", "--config", config, "--replace", "--json", file)), &r))
			if r.Exact != (lost == nil) || r.FirstUID <= later.UID || lost == nil && r.FirstUID != reaped.UID+1 {
				t.Errorf("%+v; uid %d was the last", r, reaped.UID)
			}
			checkRestored(t, opt, a, later, reaped, leader)
		})
	}
}

func checkRestored(t *testing.T, opt provision.Options, a, later, reaped chat.Chat, leader int) {
	t.Helper()
	d := startDaemon(t, opt, "")
	got, err := d.Get(t.Context(), a.ID)
	if err != nil || !got.Awake || got.UID != a.UID || firstProcess(t, got) != leader {
		t.Errorf("the chat of the backup: %s, awake %v, uid %d, %v; its first process was %d",
			got.Phase, got.Awake, got.UID, err, leader)
	}
	run, err := d.Client.Run(t.Context(), a.ID, chat.RunSpec{Command: "cat note"})
	if err != nil || run.Stdout != "before\n" {
		t.Errorf("its home: %+v, %v", run, err)
	}
	if fi, err := os.Stat(later.Home); err != nil || !fi.IsDir() {
		t.Errorf("the younger home: %v", err)
	}
	h, err := d.Host(t.Context())
	if must(t, err); !strings.Contains(strings.Join(h.Findings, "\n"), string(later.ID)) {
		t.Errorf("nothing is said of the home without a chat: %q", h.Findings)
	}
	fresh, _, err := d.Create(t.Context(), chat.Spec{ExternalID: "fresh"})
	must(t, err)
	again, _, err := d.Create(t.Context(), chat.Spec{ExternalID: "later"})
	must(t, err)
	for _, c := range []chat.Chat{fresh, again} {
		if c.UID <= reaped.UID {
			t.Errorf("uid %d is given again: %d was the last", c.UID, reaped.UID)
		}
	}
	if again.ID != later.ID {
		t.Errorf("the conversation's id is %s, want %s: the key is another", again.ID, later.ID)
	}
	if out := chatdAnswers(t, "audit", "--verify", "--state", opt.State); !strings.Contains(out, "lines hold") {
		t.Error(out)
	}
	for _, c := range []chat.Chat{a, fresh, again} {
		must(t, d.Reap(context.WithoutCancel(t.Context()), c.ID))
	}
}

// chatdAnswers runs a command of chatd and returns what it printed.
func chatdAnswers(t *testing.T, args ...string) string {
	t.Helper()
	var errs strings.Builder
	cmd := exec.Command(programs.chatd, args...)
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("chatd %s: %v: %s", strings.Join(args, " "), err, errs.String())
	}
	return string(out)
}

// firstProcess is the shell of the chat's terminal.
func firstProcess(t *testing.T, c chat.Chat) (pid int) {
	t.Helper()
	out, err := exec.Command("pgrep", "-o", "-x", "-u", fmt.Sprint(c.UID), "bash").Output()
	must(t, err)
	_, err = fmt.Sscan(string(out), &pid)
	must(t, err)
	return pid
}
