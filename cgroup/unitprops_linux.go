package cgroup

import (
	"syscall"

	"github.com/chatd/chatd/chat"
	"github.com/coreos/go-systemd/v22/dbus"
	godbus "github.com/godbus/dbus/v5"
)

// sessionUnit is what is different between two sessions.
type sessionUnit struct {
	id     chat.ID
	user   string
	pam    string
	slice  string
	argv   []string
	stdin  int
	limits []dbus.Property
}

func property(name string, value any) dbus.Property {
	return dbus.Property{Name: name, Value: godbus.MakeVariant(value)}
}

// properties are those of StartTransientUnit (org.freedesktop.systemd1(5)).
//
// Type is notify because on systemd 252 exec never ends with PAM, and simple
// calls a session that PAM refused a success.
func (s sessionUnit) properties() []dbus.Property {
	props := []dbus.Property{
		dbus.PropDescription("Session of chat " + string(s.id)),
		dbus.PropSlice(s.slice),
		dbus.PropType("notify"),
		property("NotifyAccess", "main"),
		dbus.PropExecStart(s.argv, false),
		property("User", s.user),
		property("UMask", uint32(0o077)),
		property("NoNewPrivileges", true),
		property("KeyringMode", "private"),
		property("OOMScoreAdjust", int32(500)),
		property("TimeoutStartUSec", uint64(30e6)),
		property("TimeoutStopUSec", uint64(10e6)),
		property("StandardInputFileDescriptor", godbus.UnixFD(s.stdin)),
		property("StandardOutput", "journal"),
		property("StandardError", "journal"),
		// No LogExtraFields: systemd (252 and later) never removes the file of that
		// name from /run/systemd/units. The unit's name has the id.
		property("SyslogIdentifier", "chatd-session"),
	}
	if s.pam != "" {
		props = append(props, property("PAMName", s.pam))
	}
	return append(props, groupProperties(s.limits)...)
}

// groupProperties are those of every unit with a cgroup like a session's: the
// limits, and how it ends. Stopping is SIGKILL at once: bubblewrap's pid 1 hears
// no SIGTERM. An OOM must end what ate the memory and not the whole unit.
func groupProperties(limits []dbus.Property) []dbus.Property {
	return append([]dbus.Property{
		property("Delegate", true),
		property("KillMode", "control-group"),
		property("KillSignal", int32(syscall.SIGKILL)),
		property("SuccessExitStatus", exitStatusSet{Signals: []int32{int32(syscall.SIGKILL)}}),
		property("OOMPolicy", "continue"),
		property("CollectMode", "inactive-or-failed"),
	}, limits...)
}

// exitStatusSet is the type (aiai) of SuccessExitStatus.
type exitStatusSet struct{ Codes, Signals []int32 }
