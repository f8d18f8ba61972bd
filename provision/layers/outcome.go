package layers

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/chatd/chatd/chat"
)

// Account is the layer account after a try with the named backend, which ended with err. other
// says that there was no room for an account, and that one that is there could be found.
func Account(backend string, err error, other bool) chat.Layer {
	l := chat.Layer{Name: chat.LayerAccount, State: chat.LayerOn, By: backend, At: time.Now(),
		Probe: "an account was made, found by name and number through NSS, and removed"}
	switch {
	case other:
		l.Probe = "there is no room for another account; one that is there was found by name and " +
			"number through NSS"
	case err != nil:
		return Failed(l, err, install("libnss-systemd")+", and see that passwd and group in "+
			"/etc/nsswitch.conf name systemd")
	}
	return l
}

// Home is the layer home after a try that ended with err. other says that there was no room for a
// home, and that one that is there keeps other uids out.
func Home(err error, other bool) chat.Layer {
	l := chat.Layer{Name: chat.LayerHome, State: chat.LayerOn, At: time.Now(),
		By:    "mode 0700 below a root-owned 0711 directory",
		Probe: "another uid could neither list a home, nor enter it, nor list the homes"}
	switch {
	case other:
		l.Probe = "there is no room for another home; another uid could neither list one that is " +
			"there, nor enter it, nor list the homes"
	case err != nil:
		return Failed(l, err, "homes must lie on a file system with owners and modes")
	}
	return l
}

// Disk is the layer disk after a try of quotas on each file system that enforces them, which held
// in the directories tried or ended with err. counted are the directories on the others, where
// chatd counts.
func Disk(tried, counted []string, err error) chat.Layer {
	l := chat.Layer{Name: chat.LayerDisk, State: chat.LayerOn, At: time.Now(), By: "user quotas",
		Probe: "a uid that wrote more bytes, and made more files, than its quota was refused: " +
			strings.Join(tried, ", ")}
	const fix = "use ext4 with the feature quota, or XFS, mounted with usrquota"
	switch {
	case errors.Is(err, ErrLeftOut):
		l.By = ""
		return Failed(l, err, "")
	case NoRoom(err):
		l.Probe = "the kernel says that it enforces quotas; there is no room to try one"
	case CannotTell(err):
		return Failed(l, err, "")
	case err != nil: // the count holds
		l.State, l.By, l.Probe, l.Fix = chat.LayerWeaker, "counts of chatd", err.Error(), fix
	}
	if len(counted) > 0 {
		l.State, l.Fix = chat.LayerWeaker, fix
		l.Probe = "no quota bounds what a uid has in " + strings.Join(counted, ", ") +
			": chatd counts it, and puts a chat to sleep that has far more than its limit"
		l.By = "counts of chatd"
		if len(tried) > 0 {
			l.By = "user quotas, counts of chatd"
		}
	}
	return l
}

// Sockets is the layer sockets after a try in a session, which found what it says or ended with
// err.
func Sockets(found string, err error) chat.Layer {
	l := chat.Layer{Name: chat.LayerSockets, State: chat.LayerOn, At: time.Now(),
		By: "sock_diag, /proc/locks", Probe: found}
	if err != nil {
		l.By = ""
		return Failed(l, err, "use a kernel with CONFIG_INET_DIAG, CONFIG_INET_UDP_DIAG and "+
			"CONFIG_UNIX_DIAG, whose modules may be loaded")
	}
	return l
}

// NoPackets is the layer of packet rules on a host without the programs for them, as err says.
func NoPackets(err error) chat.Layer {
	return chat.Layer{Name: chat.LayerEgress, State: chat.LayerOff, At: time.Now(),
		Probe: err.Error(), Fix: install("iptables")}
}

// NoSession are the layers of a session where none came up, as err says.
func NoSession(err error) (failed []chat.Layer) {
	for _, name := range []chat.LayerName{chat.LayerTmp, chat.LayerProc, chat.LayerView,
		chat.LayerLandlock, chat.LayerSeccomp, chat.LayerPrivileges, chat.LayerPath,
		chat.LayerNetwork, chat.LayerSockets} {
		l := chat.Layer{Name: name, At: time.Now()}
		failed = append(failed, Failed(l, fmt.Errorf("no session came up: %w", err), fixSession()))
	}
	return failed
}

// fixSession guesses why no session comes up, and returns a fix.
func fixSession() string {
	for _, tool := range []string{"bwrap", "tmux", "nsenter"} {
		if _, err := exec.LookPath(tool); err != nil {
			return install("bubblewrap tmux util-linux")
		}
	}
	return "bubblewrap must be able to make user namespaces: see user.max_user_namespaces, " +
		"kernel.unprivileged_userns_clone and, on Ubuntu, " +
		"kernel.apparmor_restrict_unprivileged_userns"
}

// osRelease is os-release(5); tests name another file.
var osRelease = "/etc/os-release"

// installers are the package managers of the systems that os-release(5) names in ID or ID_LIKE.
var installers = []struct{ systems, command string }{
	{"debian ubuntu", "apt-get install"}, {"fedora rhel centos", "dnf install"},
	{"suse opensuse", "zypper install"}, {"arch", "pacman -S"}, {"alpine", "apk add"},
}

// install is the command by which this host installs packages, or words where it is none of those
// that chatd knows. Packages have Debian's names.
func install(packages string) string {
	text, err := os.ReadFile(osRelease)
	if err != nil {
		return "install " + packages
	}
	var own, like []string
	for line := range strings.Lines(string(text)) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		words := strings.Fields(strings.Trim(value, `"'`))
		switch key {
		case "ID":
			own = words
		case "ID_LIKE":
			like = words
		}
	}
	for _, system := range append(own, like...) {
		for i, in := range installers {
			if !slices.Contains(strings.Fields(in.systems), system) {
				continue
			}
			if i > 0 { // only Debian packs it apart
				packages = strings.ReplaceAll(packages, "libnss-systemd", "systemd")
			}
			return in.command + " " + packages
		}
	}
	return "install " + packages
}
