//go:build e2e

package vagrant

import (
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// TestHostBehindItsBack: rules are flushed and an account's record goes. The
// rules are mended as soon as chatd sees it, the account within a minute, and
// sessions are not touched.
func TestHostBehindItsBack(t *testing.T) {
	useProfiles(t)
	useOutside(t)
	c := create(t, "web")
	before := sessionOf(t, c.ID)
	denied := net.JoinHostPort(outsideV4, "8001")
	mended := func() bool {
		return refused(dial(c.UID, "tcp", denied)) && refused(dial(c.UID, "tcp", net.JoinHostPort(outsideV6, "8001")))
	}
	for _, flush := range []string{"iptables -F; ip6tables -F", "nft flush ruleset"} {
		shell(t, flush)
		eventually(t, timeout, "mended after "+flush, mended)
	}
	records, _ := filepath.Glob(filepath.Join(userdb, "*"+string(c.ID)+"*"))
	must.True(t, len(records) != 0, "the chat has no record in userdb")
	for _, r := range records {
		must.Do(t, os.Remove(r))
	}
	must.True(t, expect.Err(try(timeout, "getent", "passwd", c.User)) != nil,
		"the account is still resolved: nothing was removed")
	reconciled(t, "the account is mended", func() bool {
		_, err := try(timeout, "getent", "passwd", c.User)
		return err == nil
	})
	wantCarried(t, "what the profile allows, after mending", c.UID, "tcp", net.JoinHostPort(outsideV4, "8000"), true)
	expect.Equal(t, sessionOf(t, c.ID), before, "the session was %+v and", before)
	expect.NoError(t, healthy())
}

// TestHostEgressJump: without its jump in OUTPUT the wall does not stop anybody,
// so every refusal above comes from it. chatd is stopped for that: it would put
// the jump back at once, which its start does too.
func TestHostEgressJump(t *testing.T) {
	useOutside(t)
	c := create(t, "")
	at := net.JoinHostPort(outsideV4, "8001")
	wantDial(t, "with the jump", c.UID, "tcp", at, false)
	output(t, "systemctl", "stop", service)
	t.Cleanup(func() { output(t, "systemctl", "start", service) })
	rule := shell(t, "iptables -S OUTPUT | grep -- '-j CHATD' | head -1 | sed 's/^-A/-D/'")
	shell(t, "iptables "+rule)
	expect.Is(t, dial(c.UID, "tcp", at), nil,
		"without the jump: …, want an answer: the refusals of other tests come from elsewhere")
	output(t, "systemctl", "start", service)
	wantDial(t, "mended", c.UID, "tcp", at, false)
}

// TestHostXtablesLock: somebody holds the lock of xtables for half a minute.
// Creates do not need it; chatd's own start waits for it, or does not need it
// either (iptables over nft takes no lock).
func TestHostXtablesLock(t *testing.T) {
	release := must.Get(holdLock())(t)
	if again, err := holdLock(); err == nil {
		_ = again()
		t.Fatal("the lock can be taken twice: it is not held")
	}
	freed := make(chan error, 1)
	time.AfterFunc(30*time.Second, func() { freed <- release() })
	begin := time.Now()
	for range 3 {
		c, err := ask(chat.Spec{ExternalID: external(t), Awake: new(bool)})
		if err != nil {
			t.Errorf("create while the lock is held: %v", err)
			continue
		}
		must.Do(t, reap(c.ID))
	}
	t.Logf("three creates and reaps took %v", time.Since(begin).Round(time.Millisecond))
	restart(t)
	must.Do(t, <-freed)
	expect.NoError(t, healthy())
}
