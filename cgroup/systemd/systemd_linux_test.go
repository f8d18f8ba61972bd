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
		if got[name] != want {
			t.Errorf("%s is %s, want %s", name, got[name], want)
		}
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
		if err := named(godbus.Error{Name: name}); !errors.Is(err, want) {
			t.Errorf("%s is %v, want %v", name, err, want)
		}
	}
	if err := named(nil); err != nil {
		t.Errorf("no error is %v", err)
	}
}

// TestHandshake plays the other side: the files arrive, and a message other than the expected one
// is the error.
func TestHandshake(t *testing.T) {
	d, err := newHandshake()
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	theirs := int(d.theirs.Fd())
	if _, err := unix.Write(theirs, []byte(wordHere)); err != nil {
		t.Fatal(err)
	}
	if err := d.await(wordHere, generous); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open("/dev/zero")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := d.hand([]*os.File{f, f, f}); err != nil {
		t.Fatal(err)
	}
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
	if _, err := unix.Write(theirs, []byte("cannot enter: no room")); err != nil {
		t.Fatal(err)
	}
	err = d.await(wordSettled, generous)
	if err == nil || !strings.Contains(err.Error(), "no room") {
		t.Errorf("await gave %v, want what was said", err)
	}
	if err := d.await(wordSettled, 10*time.Millisecond); err == nil {
		t.Error("await gave no error in silence")
	}
	d.theirs.Close()
	if err := d.await(wordSettled, generous); err == nil {
		t.Error("await gave no error at the end")
	}
}

// TestSettle: the first process is told which process stays, and answers.
func TestSettle(t *testing.T) {
	d, err := newHandshake()
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	theirs := int(d.theirs.Fd())
	if _, err := unix.Write(theirs, []byte(wordSettled)); err != nil {
		t.Fatal(err)
	}
	if err := d.Settle(4711); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 64)
	if n, err := unix.Read(theirs, buf); err != nil || string(buf[:n]) != "main 4711" {
		t.Errorf("the first process reads %q, %v", buf[:n], err)
	}
	if _, err := unix.Write(theirs, []byte("cannot tell systemd")); err != nil {
		t.Fatal(err)
	}
	err = d.Settle(4711)
	if !errors.Is(err, chat.ErrBusy) || !strings.Contains(err.Error(), "cannot tell systemd") {
		t.Errorf("Settle gave %v, want what was said", err)
	}
}
