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
)

// rules of every preset, in the order in which they are asked.
var rules = slices.Concat(ownRules, picoclawRules)

var ownRules = []rule{
	{"fork-bomb", both, noBomb, orLoop, nil, func(k *command) bool { return k.uses(shell.UseForkBomb) }},
	{"write-to-device", byDefault, noDisks, orFiles, nil, writesDevice},
	{"rm-recursive-whole", byDefault, noWhole, orName, set("rm rmdir unlink srm wipe"),
		func(k *command) bool {
			return k.has("", "no-preserve-root") || k.has("rR", "recursive") &&
				slices.ContainsFunc(k.operands, k.whole)
		}},
	{"find-delete-outside", byDefault, noWhole, orName, set("find"), findDeletes},
	{"chmod-whole", byDefault, noWhole, orName, set("chmod chown chgrp setfacl chattr"),
		func(k *command) bool {
			return k.has("R", "recursive") && len(k.operands) > 1 &&
				slices.ContainsFunc(k.operands[1:], k.namesOutside)
		}},
	{"chmod-set-id", byDefault, noMode, orOther, set("chmod"), func(k *command) bool {
		return len(k.operands) > 0 && setModes.MatchString(k.operands[0].Text)
	}},
	{"format", byDefault, noDisks, orFiles,
		set(`mkfs mke2fs mkswap fdisk sfdisk cfdisk gdisk sgdisk parted wipefs blkdiscard losetup cryptsetup
			swapon swapoff pvcreate vgremove lvremove`), func(k *command) bool { return len(k.args) > 0 }},
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
		return k.has("wp", "write", "load", "system") ||
			anyText(k.operands, func(s string) bool { return strings.Contains(s, "=") })
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
			(k.args[n-1].Text == "-1" && n > 1 || k.verb("1", "-1"))
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
	first := slices.IndexFunc(k.args, func(a shell.Arg) bool { return strings.HasPrefix(a.Text, "-") })
	if !anyText(k.args, func(s string) bool { return s == "-delete" }) {
		return false
	}
	if first == 0 {
		return k.outside(k.path("."))
	}
	return slices.ContainsFunc(k.args[:first], k.namesOutside)
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
	return k.has("c", "config-file") || anyText(k.args, func(s string) bool {
		return strings.HasPrefix(strings.TrimPrefix(s, "-o"), "Dir")
	})
}

// picoclawRules are the deny patterns of PicoClaw's exec tool, in its order, as rules
// about words; specs/0004-running-commands.md says what each one means here.
var picoclawRules = []rule{
	listed("rm-rf", "rm", func(k *command) bool { return k.has("rRf", "recursive", "force") }),
	listed("del", "del", func(k *command) bool { return slashOption(k, "/f", "/q") }),
	listed("rmdir-s", "rmdir rd", func(k *command) bool { return slashOption(k, "/s") }),
	listed("format", "format mkfs diskpart", func(k *command) bool { return len(k.args) > 0 }),
	listed("dd-if", "dd", func(k *command) bool {
		return anyText(k.operands, func(s string) bool { return strings.HasPrefix(s, "if=") })
	}),
	listed("write-to-disk", "", writesDevice),
	listed("command-substitution", "", func(k *command) bool {
		return k.uses(shell.UseSubstitution) && !k.uses(shell.UseBackquotes)
	}),
	listed("variable-expansion", "", func(k *command) bool { return k.uses(shell.UseBraces) }),
	listed("backticks", "", func(k *command) bool { return k.uses(shell.UseBackquotes) }),
	listed("curl-sh", shell.Shells, func(k *command) bool { return slices.Contains(k.From, "curl") }),
	listed("wget-sh", shell.Shells, func(k *command) bool { return slices.Contains(k.From, "wget") }),
	listed("pipe-to-shell", shell.Shells, func(k *command) bool { return len(k.From) > 0 }),
	listed("sudo", "sudo", nil),
	listed("chmod-octal", "chmod", func(k *command) bool {
		return anyText(k.operands, octalModes.MatchString)
	}),
	listed("chown", "chown", nil),
	listed("pkill", "pkill", nil),
	listed("killall", "killall", nil),
	listed("kill-9", "kill", func(k *command) bool { return anyText(k.args, killSignal.MatchString) }),
	listed("ssh", "ssh", func(k *command) bool {
		return k.has("l") || anyText(k.operands, func(s string) bool { return strings.Contains(s, "@") })
	}),
	listed("apt", "apt apt-get", func(k *command) bool { return k.first("install", "remove", "purge") }),
	listed("yum", "yum", func(k *command) bool { return k.first("install", "remove") }),
	listed("dnf", "dnf", func(k *command) bool { return k.first("install", "remove") }),
	listed("npm-global", "npm", func(k *command) bool {
		return k.first("install", "i", "add") && k.has("g", "global")
	}),
	listed("pip-user", "pip pip3", func(k *command) bool { return k.first("install") && k.has("", "user") }),
	listed("docker-run", "docker", func(k *command) bool { return k.docker("run") }),
	listed("docker-exec", "docker", func(k *command) bool { return k.docker("exec") }),
	listed("git-push", "git", func(k *command) bool {
		return slices.Contains([]string{"push", "force", "send-pack"}, k.git())
	}),
}

// listed is a rule of PicoClaw's list about programs, or about every command.
func listed(name, programs string, match func(*command) bool) rule {
	r := rule{name, picoclaw, "PicoClaw's list has it", "ask an operator", nil, match}
	if programs != "" {
		r.programs = set(programs)
	}
	return r
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
	return anyText(k.args, func(s string) bool { return slices.Contains(options, strings.ToLower(s)) })
}
