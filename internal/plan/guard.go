package plan

import (
	"maps"
	"slices"
	"strings"
)

// ExitRefused is the exit code of a refused command; shells use it for one that cannot run.
const ExitRefused = 126

// refusals are the commands that never run, each with the rule of package guard that is the
// reason.
var refusals = map[string]string{
	"sudo": "privileges", "su": "privileges", "doas": "privileges", "pkexec": "privileges",
	"runuser": "privileges",
	"passwd":  "accounts", "chsh": "accounts", "chfn": "accounts", "useradd": "accounts",
	"userdel": "accounts", "usermod": "accounts",
	"mount": "mounts", "umount": "mounts", "fusermount": "mounts", "fusermount3": "mounts",
	"shutdown": "power", "reboot": "power", "poweroff": "power", "halt": "power",
	"systemctl": "services", "service": "services", "loginctl": "services",
	"crontab": "later", "at": "later", "batch": "later", "systemd-run": "later",
	"insmod": "kernel", "modprobe": "kernel", "rmmod": "kernel", "sysctl": "kernel",
	"iptables": "firewall", "ip6tables": "firewall", "nft": "firewall",
	"docker": "containers", "podman": "containers", "chroot": "containers", "nsenter": "containers",
	"unshare": "containers", "bwrap": "containers",
}

// ShimNames lists the commands that never run in a session, sorted. Each has a shim that prints
// the reason. The commands of [GuardedNames] may run.
func ShimNames() []string { return slices.Sorted(maps.Keys(refusals)) }

// guardedNames are the programs whose shim runs them if the profile allows it. The programs of
// refusals never run, unless a custom allow pattern of the profile matches them.
var guardedNames = strings.Fields(`rm dd chmod chown chgrp kill pkill killall killall5 mkfs mkfs.ext2 mkfs.ext3 mkfs.ext4 mkfs.xfs mkfs.btrfs mkfs.vfat
	mke2fs mkswap fdisk sfdisk cfdisk parted wipefs curl wget ssh scp sftp nc git npm pip pip3
	apt apt-get aptitude dpkg yum dnf rpm zypper pacman apk snap flatpak`)

// Never returns the rule of package guard because of which a command never runs in a session;
// ok is false for a command that may run.
func Never(name string) (rule string, ok bool) {
	rule, ok = refusals[name]
	return rule, ok
}

// GuardedNames lists the programs that get a shim where the host has them.
func GuardedNames() []string { return guardedNames }
