package guard

import (
	"slices"
	"strings"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/shell"
)

// rule is one thing that a preset refuses.
type rule struct {
	name            string
	presets         []chat.GuardPreset
	reason, instead string
	// programs it is about; nil is every command.
	programs map[string]bool
	// match looks closer; nil is every use of the programs.
	match func(*command) bool
}

// about reports whether r asks about k. A question for help or the version is harmless.
func (r *rule) about(k *command) bool { return r.programs == nil || k.is(r.programs) && !k.asksHelp() }

var (
	byDefault = []chat.GuardPreset{chat.GuardDefault}
	both      = []chat.GuardPreset{chat.GuardDefault, chat.GuardPicoClaw}
	picoclaw  = []chat.GuardPreset{chat.GuardPicoClaw}
)

// Why a command does not run, and what to do instead.
const (
	noRoot, orAsk       = "a chat gains no privileges", "ask an operator for what needs them"
	noPower, orExit     = "the host is not yours to stop", "end your own programs, or type exit to end this session"
	noSystem, orLocal   = "the system's packages belong to the host", "install below your home: pip install --user, npm install, a venv"
	noBoxes, orPlain    = "a chat cannot hold containers or namespaces", "run the program itself"
	noDisks, orFiles    = "a chat has no disks", "write to a file in your home"
	noWhole, orName     = "it takes the whole home, or what is not yours", "name the directory in your home that is meant"
	noKillAll, orPid    = "it ends everything in this chat, its terminal too", "name the process: kill PID, pkill NAME"
	noFetched, orLook   = "it runs what comes from elsewhere before anybody has read it", "save it to a file, read it, then run the file"
	noAccounts, orChatd = "the account belongs to chatd", "ask an operator"
	noMounts, orHome    = "what a chat sees is set when it wakes", "work in your home or /tmp"
	noServices, orStart = "a chat has no services", "start the program in this terminal"
	noLater, orLater    = "nothing of a chat runs while it sleeps", "ask the bridge to come back later"
	noKernel, orKernel  = "the kernel is shared with others", "ask an operator"
	noFirewall, orAllow = "where packets may go is set by the profile", "ask an operator to allow the address"
	noBomb, orLoop      = "it starts itself without end", "start the programs that you need one by one"
	noMode, orOther     = "a set-id bit gains nothing here", "leave the bit out"
	listed, orAskListed = "PicoClaw's list has it", "ask an operator"
)

// rules of every preset, in the order in which they are asked.
var rules = slices.Concat(ownRules, picoclawRules)

var ownRules = []rule{
	{"fork-bomb", both, noBomb, orLoop, nil, func(k *command) bool { return k.Uses&shell.UseForkBomb != 0 }},
	{"write-to-device", byDefault, noDisks, orFiles, nil, writesDevice},
	{"rm-recursive-whole", byDefault, noWhole, orName, set("rm rmdir unlink srm wipe"),
		func(k *command) bool {
			return k.has("", "no-preserve-root") || k.has("rR", "recursive") &&
				slices.ContainsFunc(k.operands, k.whole)
		}},
	{"find-delete-outside", byDefault, noWhole, orName, set("find"), findDeletes},
	{"chmod-whole", byDefault, noWhole, orName, set("chmod chown chgrp setfacl chattr"),
		func(k *command) bool {
			return k.has("R", "recursive") && len(k.operands) > 1 && slices.ContainsFunc(k.operands[1:],
				func(a shell.Arg) bool { return !a.Unknown && k.outside(k.path(a.Text)) })
		}},
	{"chmod-set-id", byDefault, noMode, orOther, set("chmod"), func(k *command) bool {
		return len(k.operands) > 0 && setModes.MatchString(k.operands[0].Text)
	}},
	{"format", byDefault, noDisks, orFiles,
		set("mkfs mke2fs mkswap fdisk sfdisk cfdisk gdisk sgdisk parted wipefs blkdiscard losetup cryptsetup swapon swapoff pvcreate vgremove lvremove"), func(k *command) bool { return len(k.args) > 0 }},
	{"power", both, noPower, orExit, set("shutdown reboot poweroff halt telinit"), nil},
	{"power", byDefault, noPower, orExit, set("init systemctl"), func(k *command) bool {
		return k.first("0", "6", "reboot", "poweroff", "halt", "kexec", "suspend", "hibernate", "rescue",
			"emergency")
	}},
	{"privileges", byDefault, noRoot, orAsk, set("sudo su doas pkexec runuser newgrp"), nil},
	{"accounts", byDefault, noAccounts, orChatd,
		set("passwd chsh chfn useradd userdel usermod adduser deluser groupadd chpasswd visudo"), nil},
	{"mounts", byDefault, noMounts, orHome, set("mount umount fusermount fusermount3 pivot_root"),
		func(k *command) bool {
			return len(k.args) > 0 &&
				!(k.name == "mount" && strings.Trim(k.short, "lv") == "" && len(k.long)+len(k.operands) == 0)
		}},
	{"services", byDefault, noServices, orStart, set("systemctl service loginctl"), func(k *command) bool {
		return !k.first(readingServices...) && len(k.args) > 0
	}},
	{"later", byDefault, noLater, orLater, set("crontab at batch systemd-run"), nil},
	{"kernel", byDefault, noKernel, orKernel, set("insmod modprobe rmmod kexec"), nil},
	{"kernel", byDefault, noKernel, orKernel, set("sysctl"), func(k *command) bool {
		return k.has("wp", "write", "load", "system") || anyAssigned(k)
	}},
	{"firewall", byDefault, noFirewall, orAllow,
		set("iptables ip6tables iptables-restore ip6tables-restore nft ufw firewall-cmd"), nil},
	{"containers", byDefault, noBoxes, orPlain,
		set("docker podman nerdctl ctr lxc-start chroot nsenter unshare bwrap systemd-nspawn"), nil},
	{"packages", byDefault, noSystem, orLocal,
		set("apt apt-get aptitude yum dnf zypper apk pacman snap flatpak"), changesPackages},
	{"packages", byDefault, noSystem, orLocal, set("dpkg rpm"), func(k *command) bool {
		return !(k.name == "rpm" && k.has("qV", "query", "verify")) &&
			k.has("irPUeF", "install", "remove", "purge", "unpack", "configure", "erase", "upgrade")
	}},
	{"kill-everything", byDefault, noKillAll, orPid, set("kill"), func(k *command) bool {
		n := len(k.args)
		return n > 0 && k.args[0].Text != "-0" &&
			(k.args[n-1].Text == "-1" && n > 1 || slices.ContainsFunc(k.operands, func(a shell.Arg) bool {
				return a.Text == "1" || a.Text == "-1"
			}))
	}},
	{"kill-everything", byDefault, noKillAll, orPid, set("pkill killall killall5"), func(k *command) bool {
		return k.name == "killall5" || k.has("uU", "user", "euid", "uid") ||
			k.verb(".", ".*", "", "^", "tmux", "bwrap")
	}},
	{"fetched-code", byDefault, noFetched, orLook, nil, func(k *command) bool { return k.code(fetchers) }},
	{"decoded-code", byDefault, noFetched, orLook, nil, func(k *command) bool { return k.code(decoders) }},
}

// readingServices are verbs of systemctl(1) and loginctl(1) that change nothing.
var readingServices = strings.Fields(`cat help is-active is-enabled is-failed list-dependencies list-sessions list-timers list-unit-files
	list-units list-users session-status show show-session show-user status user-status`)

// findDeletes reports find with -delete that starts outside.
func findDeletes(k *command) bool {
	if !slices.ContainsFunc(k.args, func(a shell.Arg) bool { return a.Text == "-delete" }) {
		return false
	}
	from := k.args
	if i := slices.IndexFunc(from, func(a shell.Arg) bool { return strings.HasPrefix(a.Text, "-") }); i >= 0 {
		from = from[:i]
	}
	if len(from) == 0 {
		return k.outside(k.path("."))
	}
	return slices.ContainsFunc(from, func(a shell.Arg) bool {
		return !a.Unknown && k.outside(k.path(a.Text))
	})
}

func changesPackages(k *command) bool {
	if (k.name == "apt" || k.name == "apt-get") && k.ownTree() ||
		k.first("depends", "info", "list", "policy", "provides", "rdepends", "search", "show") {
		return false
	}
	return k.verb("install", "remove", "purge", "upgrade", "dist-upgrade", "full-upgrade", "autoremove",
		"reinstall", "update", "add", "del", "erase", "refresh") ||
		k.name == "pacman" && (k.has("S") && !k.has("silgph") || k.has("RU") && !k.has("ph"))
}

// ownTree reports whether apt is given lists and caches of its own: Dir::State and the like, by an
// option or a file of settings (apt.conf(5)).
func (k *command) ownTree() bool {
	return k.has("c", "config-file") || slices.ContainsFunc(k.args, func(a shell.Arg) bool {
		return strings.HasPrefix(strings.TrimPrefix(a.Text, "-o"), "Dir")
	})
}

func anyAssigned(k *command) bool {
	return slices.ContainsFunc(k.operands, func(a shell.Arg) bool { return strings.Contains(a.Text, "=") })
}

// picoclawRules are the deny patterns of PicoClaw's exec tool, in its order, as rules
// about words; specs/0004-running-commands.md says what each one means here.
var picoclawRules = []rule{
	{"rm-rf", picoclaw, listed, orAskListed, set("rm"), func(k *command) bool {
		return k.has("rRf", "recursive", "force")
	}},
	{"del", picoclaw, listed, orAskListed, set("del"), func(k *command) bool {
		return slashOption(k, "/f", "/q")
	}},
	{"rmdir-s", picoclaw, listed, orAskListed, set("rmdir rd"), func(k *command) bool {
		return slashOption(k, "/s")
	}},
	{"format", picoclaw, listed, orAskListed, set("format mkfs diskpart"), func(k *command) bool {
		return len(k.args) > 0
	}},
	{"dd-if", picoclaw, listed, orAskListed, set("dd"), func(k *command) bool {
		_, ok := k.value("if")
		return ok
	}},
	{"write-to-disk", picoclaw, listed, orAskListed, nil, writesDevice},
	{"command-substitution", picoclaw, listed, orAskListed, nil, func(k *command) bool {
		return k.Uses&shell.UseSubstitution != 0 && k.Uses&shell.UseBackquotes == 0
	}},
	{"variable-expansion", picoclaw, listed, orAskListed, nil, func(k *command) bool {
		return k.Uses&shell.UseBraces != 0
	}},
	{"backticks", picoclaw, listed, orAskListed, nil, func(k *command) bool {
		return k.Uses&shell.UseBackquotes != 0
	}},
	{"curl-sh", picoclaw, listed, orAskListed, shells, func(k *command) bool {
		return slices.Contains(k.From, "curl")
	}},
	{"wget-sh", picoclaw, listed, orAskListed, shells, func(k *command) bool {
		return slices.Contains(k.From, "wget")
	}},
	{"pipe-to-shell", picoclaw, listed, orAskListed, shells, func(k *command) bool {
		return len(k.From) > 0
	}},
	{"sudo", picoclaw, listed, orAskListed, set("sudo"), nil},
	{"chmod-octal", picoclaw, listed, orAskListed, set("chmod"), func(k *command) bool {
		return slices.ContainsFunc(k.operands, func(a shell.Arg) bool {
			return octalModes.MatchString(a.Text)
		})
	}},
	{"chown", picoclaw, listed, orAskListed, set("chown"), nil},
	{"pkill", picoclaw, listed, orAskListed, set("pkill"), nil},
	{"killall", picoclaw, listed, orAskListed, set("killall"), nil},
	{"kill-9", picoclaw, listed, orAskListed, set("kill"), func(k *command) bool {
		return slices.ContainsFunc(k.args, func(a shell.Arg) bool {
			return slices.Contains([]string{"-9", "-KILL", "-SIGKILL", "9", "KILL", "SIGKILL", "-s9",
				"-sKILL", "-n9"}, a.Text)
		})
	}},
	{"ssh", picoclaw, listed, orAskListed, set("ssh"), func(k *command) bool {
		return slices.ContainsFunc(k.operands, func(a shell.Arg) bool {
			return strings.Contains(a.Text, "@")
		}) || k.has("l")
	}},
	{"apt", picoclaw, listed, orAskListed, set("apt apt-get"), func(k *command) bool {
		return k.first("install", "remove", "purge")
	}},
	{"yum", picoclaw, listed, orAskListed, set("yum"), func(k *command) bool {
		return k.first("install", "remove")
	}},
	{"dnf", picoclaw, listed, orAskListed, set("dnf"), func(k *command) bool {
		return k.first("install", "remove")
	}},
	{"npm-global", picoclaw, listed, orAskListed, set("npm"), func(k *command) bool {
		return k.first("install", "i", "add") && k.has("g", "global")
	}},
	{"pip-user", picoclaw, listed, orAskListed, set("pip pip3"), func(k *command) bool {
		return k.first("install") && k.has("", "user")
	}},
	{"docker-run", picoclaw, listed, orAskListed, set("docker"), func(k *command) bool {
		return k.docker("run")
	}},
	{"docker-exec", picoclaw, listed, orAskListed, set("docker"), func(k *command) bool {
		return k.docker("exec")
	}},
	{"git-push", picoclaw, listed, orAskListed, set("git"), func(k *command) bool {
		verb := k.git()
		return verb == "push" || verb == "force" || verb == "send-pack"
	}},
}

// Why returns why a rule refuses and what to do instead, for callers that already know that it
// refuses; empty for an unknown rule.
func Why(name string) (reason, instead string) {
	for i := range rules {
		if rules[i].name == name {
			return rules[i].reason, rules[i].instead
		}
	}
	return "", ""
}

func slashOption(k *command, options ...string) bool {
	return slices.ContainsFunc(k.args, func(a shell.Arg) bool {
		return slices.Contains(options, strings.ToLower(a.Text))
	})
}
