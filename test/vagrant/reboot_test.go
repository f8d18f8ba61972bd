//go:build e2e

package vagrant

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

const (
	probeUnit    = "chatd-e2e-probe.service"
	probeProgram = "/usr/local/lib/chatd-e2e/probe"
	rebootNotes  = notes + "/reboot.json"
	probeNotes   = notes + "/probe.json"
)

// TestBeforeReboot makes 50 chats, with -short 12, half of them awake, and installs the probe that
// starts with the network.
func TestBeforeReboot(t *testing.T) {
	must.Do(t, os.MkdirAll(notes, 0o700))
	rebooters := 50
	if testing.Short() {
		rebooters = 12
	}
	made := make([]chat.Chat, rebooters)
	each(4, rebooters, func(i int) {
		awake := i%2 == 0
		c, err := ask(chat.Spec{ExternalID: fmt.Sprintf("e2e:reboot:%d", i), Awake: &awake})
		if err != nil {
			t.Errorf("create %d: %v", i, err)
			return
		}
		expect.Equal(t, c.Awake, awake, "chat %d: awake", i)
		made[i] = c
	})
	said(t, made[0].ID, "echo before > ~/note; sync ~/note")
	b := must.Get(json.Marshal(made))(t)
	must.Do(t, os.WriteFile(rebootNotes, b, 0o600))
	installProbe(t, made[1].UID)
	output(t, "sync")
}

// installProbe has systemd start this program with the network at the next boot.
func installProbe(t *testing.T, uid uint32) {
	b := must.Get(os.ReadFile("/proc/self/exe"))(t)
	must.Do(t, os.MkdirAll(filepath.Dir(probeProgram), 0o755))
	must.Do(t, os.WriteFile(probeProgram, b, 0o755))
	must.Do(t, os.WriteFile("/etc/systemd/system/"+probeUnit, fmt.Appendf(nil, `[Unit]
Description=Tries the network as a chat while it comes up
DefaultDependencies=no
After=local-fs.target network-pre.target
Wants=network-pre.target
Before=network.target

[Service]
Environment=CHATD_E2E_ACT=boot CHATD_E2E_UID=%d
ExecStart=%s

[Install]
WantedBy=sysinit.target
`, uid, probeProgram), 0o644))
	output(t, "systemctl", "daemon-reload")
	output(t, "systemctl", "enable", probeUnit)
	_ = os.Remove(probeNotes)
}

// outcome is one moment of the probe. Err is empty where somebody got through.
type outcome struct {
	At             uint64 // microseconds of the monotonic clock, as systemd's timestamps
	Network        string
	Chat, Nobody   string
	ChatAtOnce     bool
	WallIsThere    bool
	ChatWasRefused bool
}

// actBoot is the probe: for a minute it tries, as the chat and as nobody, a
// listener of this host and a datagram to an address beyond the network.
func actBoot() int {
	uid, err := strconv.ParseUint(os.Getenv("CHATD_E2E_UID"), 10, 32)
	if err != nil {
		return 2
	}
	l, err := listenAnywhere()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	var got []outcome
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(300 * time.Millisecond) {
		for _, target := range [][2]string{{"tcp", "127.0.0.1:" + l}, {"udp", "10.0.2.2:9"}} {
			got = append(got, observe(uint32(uid), target[0], target[1], len(got) < 2))
		}
		b, err := json.Marshal(got)
		if err == nil {
			err = os.WriteFile(probeNotes, b, 0o600)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
	}
	return 0
}

func observe(uid uint32, network, address string, first bool) outcome {
	o := outcome{At: monotonic(), Network: network}
	o.tryChat(uid, address)
	if o.Nobody = text(dial(nobody, network, address)); o.Nobody == "" && !o.ChatWasRefused {
		o.tryChat(uid, address) // the route may have come between the two
	}
	if first {
		rules, _ := try(timeout, "iptables", "-S", "OUTPUT")
		o.WallIsThere = strings.Contains(rules, "-j CHATD")
	}
	return o
}

// tryChat has the chat try the way to address.
func (o *outcome) tryChat(uid uint32, address string) {
	begin := time.Now()
	err := dial(uid, o.Network, address)
	o.Chat, o.ChatAtOnce, o.ChatWasRefused = text(err), time.Since(begin) < 5*time.Second, refused(err)
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func monotonic() uint64 {
	var now unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &now)
	return uint64(now.Nano() / 1000)
}

// TestAfterReboot: all are there with their uids, asleep; waking works, the home
// is what it was, and the wall stood before the first packet.
func TestAfterReboot(t *testing.T) {
	var made []chat.Chat
	must.Do(t, json.Unmarshal([]byte(content(t, rebootNotes)), &made))
	t.Cleanup(func() {
		_, _ = try(timeout, "systemctl", "disable", "--now", probeUnit)
		_ = os.Remove("/etc/systemd/system/" + probeUnit)
		_ = os.RemoveAll(filepath.Dir(probeProgram))
		_, _ = try(timeout, "systemctl", "daemon-reload")
	})
	t.Run("chats", func(t *testing.T) { checkRebooted(t, made) })
	t.Run("wall", func(t *testing.T) { checkBootWall(t, made[1].UID) })
	expect.NoError(t, healthy())
	each(4, len(made), func(i int) { expect.NoError(t, reap(made[i].ID)) })
	leftNothing(t, made)
}

func checkRebooted(t *testing.T, made []chat.Chat) {
	now := map[chat.ID]chat.Chat{}
	for _, c := range all(t) {
		now[c.ID] = c
	}
	for _, was := range made {
		is := now[was.ID]
		if is.ExternalID != was.ExternalID || is.UID != was.UID || is.Phase != chat.Ready || is.Awake {
			t.Errorf("before the reboot %+v, after it %+v", was, is)
		}
		expect.True(t, missing("/run/chatd/sessions/"+string(was.ID)),
			"chat %s has a session of before the reboot", was.ID)
		out := output(t, "getent", "passwd", was.User)
		expect.True(t, strings.Contains(out, fmt.Sprintf(":%d:%d:", was.UID, was.UID)), "the account of %s: %s", was.ID, out)
	}
	each(2, 6, func(i int) {
		c, err := asker.Wake(bounded(timeout), made[i].ID)
		expect.True(t, err == nil && c.Awake, "wake %s: %v", made[i].ID, err)
	})
	expect.Equal(t, said(t, made[0].ID, "cat ~/note"), "before", "the home has")
}

// checkBootWall reads what the probe saw: nobody got through at some time, so there
// was a way; the chat never did; the wall was first.
func checkBootWall(t *testing.T, uid uint32) {
	var got []outcome
	eventually(t, timeout, "the probe has seen the network", func() bool {
		b, _ := os.ReadFile(probeNotes)
		got = nil
		_ = json.Unmarshal(b, &got)
		return slices.ContainsFunc(got, func(o outcome) bool { return o.Network == "udp" && o.Nobody == "" })
	})
	through := map[string]int{}
	for i, o := range got {
		if o.Nobody == "" {
			through[o.Network]++
			expect.True(t, o.ChatWasRefused && o.ChatAtOnce,
				"nobody got through at %d µs, and the chat was not refused at once: %+v", o.At, o)
		}
		expect.True(t, o.Chat != "", "a chat (uid %d) got through at %d µs: %+v", uid, o.At, o)
		if i < 2 && !o.WallIsThere {
			t.Errorf("no wall at the first try: %+v", o)
		}
	}
	expect.True(t, through["tcp"] != 0 && through["udp"] != 0,
		"nobody got through %v times: the probe shows nothing", through)
	wall := entered(t, "chatd-wall.service")
	for _, later := range []string{"network-pre.target", probeUnit, "systemd-networkd.service", "network.target", service} {
		at := entered(t, later)
		expect.True(t, at >= wall, "%s at %d µs, before the wall at %d", later, at, wall)
	}
	if got[0].At < wall {
		t.Errorf("the probe began at %d µs, before the wall at %d", got[0].At, wall)
	}
	t.Logf("wall at %d µs, first try at %d, network.target at %d, %v tries by nobody got through", wall, got[0].At, entered(t, "network.target"), through)
}

// entered is when a unit became active, in microseconds since the boot.
func entered(t *testing.T, unit string) uint64 {
	t.Helper()
	n := must.Get(strconv.ParseUint(property(t, unit, "ActiveEnterTimestampMonotonic"), 10, 64))(t)
	expect.True(t, n != 0, "%s was never active", unit)
	return n
}
