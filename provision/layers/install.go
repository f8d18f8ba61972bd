package layers

import (
	"os"
	"slices"
	"strings"
)

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
