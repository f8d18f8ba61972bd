package shims

import (
	"fmt"
	"io"
	"slices"
)

// ExitRefused is the exit code of a refused command: found, but not to be run.
const ExitRefused = 126

// refusal is why a command does not run, and what to do instead.
type refusal struct{ reason, instead string }

var (
	noRoot     = refusal{"a chat gains no privileges", "ask an operator for what needs them"}
	noAccounts = refusal{"the account belongs to chatd", "ask an operator"}
	noMounts   = refusal{"what a chat sees is set when it wakes", "work in your home or /tmp"}
	noPower    = refusal{"the host is not yours to stop", "type exit to end this session"}
	noServices = refusal{"a chat has no services", "start the program in this terminal"}
	noLater    = refusal{"nothing of a chat runs while it sleeps", "ask the bridge to come back later"}
	noKernel   = refusal{"the kernel is shared with others", "ask an operator"}
	noFirewall = refusal{"where packets may go is set by the profile", "ask an operator to allow the address"}
	noBoxes    = refusal{"a chat cannot hold containers or namespaces", "run the program itself"}
)

// refusals is every shim by name.
var refusals = map[string]refusal{
	"sudo": noRoot, "su": noRoot, "doas": noRoot, "pkexec": noRoot, "runuser": noRoot,
	"passwd": noAccounts, "chsh": noAccounts, "chfn": noAccounts, "useradd": noAccounts, "userdel": noAccounts, "usermod": noAccounts,
	"mount": noMounts, "umount": noMounts, "fusermount": noMounts, "fusermount3": noMounts,
	"shutdown": noPower, "reboot": noPower, "poweroff": noPower, "halt": noPower,
	"systemctl": noServices, "service": noServices, "loginctl": noServices,
	"crontab": noLater, "at": noLater, "batch": noLater, "systemd-run": noLater,
	"insmod": noKernel, "modprobe": noKernel, "rmmod": noKernel, "sysctl": noKernel,
	"iptables": noFirewall, "ip6tables": noFirewall, "nft": noFirewall,
	"docker": noBoxes, "podman": noBoxes, "chroot": noBoxes, "nsenter": noBoxes, "unshare": noBoxes, "bwrap": noBoxes,
}

// ShimNames lists the commands that a session's first PATH directory refuses,
// sorted. [WriteShims] makes a link for each.
func ShimNames() []string {
	names := make([]string, 0, len(refusals))
	for n := range refusals {
		names = append(names, n)
	}
	slices.Sort(names)
	return names
}

// refuse says in one line why name does not run, and returns [ExitRefused].
func refuse(name string, w io.Writer) int {
	r, ok := refusals[name]
	if !ok {
		r = refusal{"chatd knows no command of this name", "ask an operator"}
	}
	fmt.Fprintf(w, "chatd: %s refused: %s; %s\n", name, r.reason, r.instead)
	return ExitRefused
}
