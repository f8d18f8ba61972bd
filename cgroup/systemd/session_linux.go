package systemd

import (
	"strconv"
	"syscall"

	"github.com/coreos/go-systemd/v22/dbus"
	godbus "github.com/godbus/dbus/v5"

	"github.com/chatd/chatd/chat"
)

// Property is one property of a unit, by the name and type that org.freedesktop.systemd1(5) has.
type Property = dbus.Property

// Prop is the property of that name with value, whose Go type decides the D-Bus type.
func Prop(name string, value any) Property {
	return Property{Name: name, Value: godbus.MakeVariant(value)}
}

// Session is what differs between the units of two sessions.
type Session struct {
	// Unit is its name with ".service"; Slice has ".slice".
	Unit, Slice string
	Chat        chat.ID
	UID         uint32
	// PAM is the service name under /etc/pam.d; empty is none.
	PAM string
	// Argv is the command of the first process, which has the handshake as stdin.
	Argv   []string
	Limits []Property
}

// properties are those of StartTransientUnit (org.freedesktop.systemd1(5)).
//
// Type is notify because on systemd 252 exec never ends with PAM, and simple
// calls a session that PAM refused a success.
func (s Session) properties(stdin int) []Property {
	props := []Property{
		dbus.PropDescription("Session of chat " + string(s.Chat)),
		dbus.PropSlice(s.Slice),
		dbus.PropType("notify"),
		Prop("NotifyAccess", "main"),
		dbus.PropExecStart(s.Argv, false),
		Prop("User", strconv.FormatUint(uint64(s.UID), 10)),
		Prop("UMask", uint32(0o077)),
		Prop("NoNewPrivileges", true),
		Prop("KeyringMode", "private"),
		Prop("OOMScoreAdjust", int32(500)),
		Prop("TimeoutStartUSec", uint64(30e6)),
		Prop("TimeoutStopUSec", uint64(10e6)),
		Prop("StandardInputFileDescriptor", godbus.UnixFD(stdin)),
		Prop("StandardOutput", "journal"),
		Prop("StandardError", "journal"),
		// No LogExtraFields: systemd (252 and later) never removes the file of that
		// name from /run/systemd/units. The unit's name has the id.
		Prop("SyslogIdentifier", "chatd-session"),
	}
	if s.PAM != "" {
		props = append(props, Prop("PAMName", s.PAM))
	}
	return append(append(props, Prop("Delegate", true)), groupProperties(s.Limits)...)
}

// groupProperties are those of every unit with a cgroup like a session's: the
// limits, and how it ends. A stop sends SIGKILL immediately: bubblewrap's pid 1 ignores
// SIGTERM. An OOM must end the process that used the memory and not the whole unit.
func groupProperties(limits []Property) []Property {
	return append([]Property{
		Prop("KillMode", "control-group"),
		Prop("KillSignal", int32(syscall.SIGKILL)),
		Prop("SuccessExitStatus", exitStatusSet{Signals: []int32{int32(syscall.SIGKILL)}}),
		Prop("OOMPolicy", "continue"),
		Prop("CollectMode", "inactive-or-failed"),
	}, limits...)
}

// exitStatusSet is the type (aiai) of SuccessExitStatus.
type exitStatusSet struct{ Codes, Signals []int32 }

// Service is a service of argv in a slice that ends when argv's process does, which runs as long
// as its cgroup is needed. It may have cgroups below its own (Delegate).
func Service(description, slice string, argv []string) []Property {
	return []Property{
		dbus.PropDescription(description), dbus.PropSlice(slice), dbus.PropType("exec"),
		dbus.PropExecStart(argv, false), Prop("Delegate", true),
	}
}

// LikeSession is a [Service] that ends as a session does, with the limits of one.
func LikeSession(description, slice string, argv []string, limits []Property) []Property {
	return append(Service(description, slice, argv), groupProperties(limits)...)
}
