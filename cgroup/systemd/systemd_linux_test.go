package systemd

import (
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	godbus "github.com/godbus/dbus/v5"
	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// generous bounds a wait that ends at once, on any machine.
const generous = time.Minute

// TestSessionProperties checks the properties that every session must have.
func TestSessionProperties(t *testing.T) {
	s := Session{
		Unit: "chatd-0123456789abcdef.service", Slice: "chatd.slice", Chat: "0123456789abcdef",
		UID: 1879048192, PAM: "chatd", Argv: []string{"/x", "enter"},
		Limits: []Property{Prop("TasksMax", uint64(200))},
	}
	got := map[string]string{}
	for _, p := range s.properties(7) {
		got[p.Name] = p.Value.String()
	}
	for name, want := range map[string]string{
		"Type": `"notify"`, "NotifyAccess": `"main"`, "User": `"1879048192"`, "PAMName": `"chatd"`,
		"Slice":    `"chatd.slice"`,
		"Delegate": "true", "NoNewPrivileges": "true", "KeyringMode": `"private"`,
		"KillMode": `"control-group"`, "KillSignal": "9",
		"UMask": "@u 63", "TasksMax": "@t 200", "StandardInputFileDescriptor": "@h 7",
		"OOMPolicy": `"continue"`, "CollectMode": `"inactive-or-failed"`,
	} {
		expect.Equal(t, got[name], want, "%s", name)
	}
	s.PAM = ""
	if slices.ContainsFunc(s.properties(7), func(p Property) bool { return p.Name == "PAMName" }) {
		t.Error("a session without a PAM service has one")
	}
}

// TestNamed: callers branch on the sentinels of package chat.
func TestNamed(t *testing.T) {
	for name, want := range map[string]error{
		"org.freedesktop.systemd1.NoSuchUnit":       chat.ErrNotFound,
		"org.freedesktop.systemd1.UnitExists":       chat.ErrExists,
		"org.freedesktop.DBus.Error.LimitsExceeded": chat.ErrBusy,
	} {
		expect.Is(t, named(godbus.Error{Name: name}), want, "%s", name)
	}
	expect.Is(t, named(nil), nil, "no error")
}

// TestHandshake plays the other side: the files arrive, and a message other than the expected one
// is the error.
func TestHandshake(t *testing.T) {
	d := must.Get(newHandshake())(t)
	defer d.Close()
	theirs := int(d.theirs.Fd())
	must.Get(unix.Write(theirs, []byte(wordHere)))(t)
	must.Do(t, d.await(wordHere, generous))
	f := must.Get(os.Open("/dev/zero"))(t)
	defer f.Close()
	must.Do(t, d.hand([]*os.File{f, f, f}))
	buf, oob := make([]byte, 16), make([]byte, unix.CmsgSpace(4*8))
	n, oobn, _, _, err := unix.Recvmsg(theirs, buf, oob, unix.MSG_CMSG_CLOEXEC)
	if err != nil || string(buf[:n]) != wordFiles {
		t.Fatalf("got %q, %v", buf[:n], err)
	}
	m, err := unix.ParseSocketControlMessage(oob[:oobn])
	if err != nil || len(m) != 1 {
		t.Fatal(m, err)
	}
	fds, err := unix.ParseUnixRights(&m[0])
	if err != nil || len(fds) != 3 {
		t.Fatal(fds, err)
	}
	for _, fd := range fds {
		_ = unix.Close(fd)
	}
	must.Get(unix.Write(theirs, []byte("cannot enter: no room")))(t)
	err = d.await(wordMainSet, generous)
	expect.True(t, err != nil && strings.Contains(err.Error(), "no room"),
		"await gave %v, want what was said", err)
	expect.True(t, d.await(wordMainSet, 10*time.Millisecond) != nil, "await gave no error in silence")
	d.theirs.Close()
	expect.True(t, d.await(wordMainSet, generous) != nil, "await gave no error at the end")
}

// TestSettle: the first process is told which process stays, and answers.
func TestSettle(t *testing.T) {
	d := must.Get(newHandshake())(t)
	defer d.Close()
	theirs := int(d.theirs.Fd())
	must.Get(unix.Write(theirs, []byte(wordMainSet)))(t)
	must.Do(t, d.SetMainPID(4711))
	buf := make([]byte, 64)
	if n, err := unix.Read(theirs, buf); err != nil || string(buf[:n]) != "main 4711" {
		t.Errorf("the first process reads %q, %v", buf[:n], err)
	}
	must.Get(unix.Write(theirs, []byte("cannot tell systemd")))(t)
	err := d.SetMainPID(4711)
	expect.True(t, errors.Is(err, chat.ErrBusy) && strings.Contains(err.Error(), "cannot tell systemd"),
		"Settle gave %v, want what was said", err)
}
