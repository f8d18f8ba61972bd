package plan

import (
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/chatd/chatd/chat"
)

// Where things are inside a session.
const (
	InsideDir  = "/opt/chatd"
	InsideShim = InsideDir + "/chatd-shim" // the program chatd-shim
	// InsideArchive is chatd-archive, in a session whose view has it.
	InsideArchive = InsideDir + "/chatd-archive"
	InsideShims   = InsideDir + "/shims"  // links to it, first in PATH
	InsideBin     = InsideDir + "/bin"    // links to allowed programs, second in PATH
	InsideBashrc  = InsideDir + "/bashrc" // content [Bashrc]
	InsideTmux    = InsideDir + "/tmux.conf"
	InsidePrompt  = InsideDir + "/prompt" // a fifo; each shell writes one byte at its first prompt
	InsideLog     = InsideDir + "/log"    // a fifo; what the terminal prints, see [LogCommand]
	InsideRun     = "/run/chat"           // 1 MiB, 0700
	Socket        = InsideRun + "/tmux.sock"
)

// LogCommand is the sh command to which tmux pipes the output of a pane: package termlog copies
// it to [InsideLog]. One thread is enough for it.
const LogCommand = "GOMAXPROCS=1 exec " + InsideShim + " log " + InsideLog

// runSize bounds /run/chat, in bytes: it holds one socket.
const runSize = 1 << 20

// View is what a session sees of the host. All paths are absolute.
type View struct {
	// User and UID are the chat's; its gid is the same number.
	User string
	UID  uint32
	// Home is the home's path, on the host and inside. It does not lie below /tmp, /var/tmp,
	// /run, /dev, /proc, /etc or /usr.
	Home string
	// Tmp and VarTmp are the host directories that are /tmp and /var/tmp inside.
	Tmp, VarTmp string
	// Limits are the chat's; a ShmSize of 0 means 16 MiB.
	Limits  chat.Limits
	Network chat.Network
	// Shim is the host path of chatd-shim; ShimDir and BinDir are what
	// [WriteShims] and [Programs.WriteBin] made.
	Shim, ShimDir, BinDir string
	// Archive is the host path of chatd-archive; empty means none.
	Archive string
	// TmuxConf is the content of [InsideTmux].
	TmuxConf []byte
	// Vars are further variables, "NAME=value", which override those of [View.Env].
	Vars []string
	// PromptFIFO is the host path of the fifo [InsidePrompt]; empty means none.
	PromptFIFO string
	// LogFIFO is that of [InsideLog]; without PromptFIFO there is none.
	LogFIFO string
	// PolicyDir is the host path of [InsidePolicyDir], a directory of root's with the shims'
	// policy.json; empty means none.
	PolicyDir string
	// TrustPEM and TrustJKS are the host paths of what its programs trust, as [InsideTrust] and as
	// a key store of Java; empty means what the host trusts.
	TrustPEM, TrustJKS string
	// Etc is the part of the host's /etc that it shows; if nil, each use reads the host's.
	Etc *Etc
	// Exposed are further paths of the host, parents before what lies in them.
	Exposed []chat.Exposed
	// Denied are directories and files outside the home that file rules deny as a whole: Landlock
	// grants nothing there. The caller checks that no exception lies in them.
	Denied []string
	// Masked are mask mounts over existing paths that file rules deny as a whole when the session
	// begins: the last mounts, none of them over another.
	Masked []chat.Exposed
	// Opened are the exceptions from its filter of system calls.
	Opened Openings
	// InfoFD is where bwrap writes {"child-pid": …} and more; 0 means nowhere.
	InfoFD int
	// Without leaves walls out, for tests and probes.
	Without []chat.LayerName
}

// DataFile is a file that exists only inside. bwrap reads its content from a
// descriptor, so that its content never lies in a directory that chats share.
type DataFile struct {
	Target  string
	Content []byte
}

// Args are the arguments of bwrap(1), 0.8 or later, before "--" and the command. bwrap
// reads the content of files[i] from descriptor firstFD+i, which the caller passes; each
// may be a pipe if the caller writes all of it. bwrap runs as the chat, without
// supplementary groups.
func (v View) Args(firstFD int) (args []string, files []DataFile) {
	args = v.namespaceArgs()
	if v.InfoFD > 0 {
		args = append(args, "--info-fd", strconv.Itoa(v.InfoFD))
	}
	files = v.dataFiles()
	mounts := v.Mounts()
	next := firstFD
	for _, m := range mounts {
		args = append(args, mountArgs(m, next)...)
		if m.Type == chat.MountFile {
			next++
		}
	}
	return append(append(args, remountArgs(mounts)...), "--chdir", "/"), files
}

// LeavesOut reports whether a wall is left out.
func (v View) LeavesOut(l chat.LayerName) bool { return slices.Contains(v.Without, l) }

// Namespaces are the namespaces of the session's own.
func (v View) Namespaces() []string {
	names := []string{"cgroup", "ipc", "mount", "user", "uts"}
	if !v.LeavesOut(chat.LayerProc) {
		names = append(names, "pid")
	}
	if !v.LeavesOut(chat.LayerNetwork) {
		names = append(names, "net")
	}
	slices.Sort(names)
	return names
}

// namespaceArgs has no --die-with-parent: a session outlives the daemon.
func (v View) namespaceArgs() []string {
	args := []string{"--new-session", "--clearenv", "--hostname", v.User}
	for _, n := range v.Namespaces() {
		switch n {
		case "mount": // bwrap makes one in any case
		case "cgroup":
			args = append(args, "--unshare-cgroup-try")
		case "pid":
			args = append(args, "--unshare-pid", "--disable-userns")
		default:
			args = append(args, "--unshare-"+n)
		}
	}
	if v.LeavesOut(chat.LayerPrivileges) {
		args = append(args, "--cap-add", "ALL")
	}
	return args
}

// Env is the whole environment of a session and of a run, for [Plan].Env. It inherits nothing.
//
// The chat's own programs come last in PATH. npm and pip install there, because /usr is
// read-only; a variable lets pip install beside Debian's packages.
func (v View) Env() []string {
	local := path.Join(v.Home, ".local")
	dirs := InsideShims + ":" + InsideBin
	if v.LeavesOut(chat.LayerPath) {
		dirs = "/usr/local/bin:/usr/bin:/bin"
	}
	return mergeEnv(slices.Concat([]string{
		"HOME=" + v.Home, "USER=" + v.User, "LOGNAME=" + v.User, "SHELL=/bin/bash", "TERM=tmux-256color",
		"COLORTERM=truecolor",
		"LANG=C.UTF-8", "PATH=" + dirs + ":" + local + "/bin", "XDG_DATA_HOME=" + local + "/share",
		// Short, because a socket's path has 107 bytes (unix(7)).
		"TMPDIR=/tmp", "XDG_CONFIG_HOME=" + path.Join(v.Home, chat.UserEnv, "config"),
		"XDG_CACHE_HOME=" + path.Join(v.Home, chat.UserEnv, "cache"),
		"XDG_STATE_HOME=" + path.Join(v.Home, chat.UserEnv, "state"),
		"PAGER=" + v.firstOf("cat", "less", "more"), "EDITOR=" + v.firstOf("vi", "nano", "vim", "vi", "ed"),
		"NPM_CONFIG_PREFIX=" + local, "PIP_BREAK_SYSTEM_PACKAGES=1",
		// LeakSanitizer needs a process that shares its descriptors: see sharedFilesRule.
		"ASAN_OPTIONS=detect_leaks=0", "LSAN_OPTIONS=detect_leaks=0",
	}, v.sizeEnv(), v.trustEnv()), v.Vars)
}

// firstOf returns the first of the programs that the chat's PATH has, or the usual one.
func (v View) firstOf(usual string, names ...string) string {
	for _, name := range names {
		if _, err := os.Lstat(filepath.Join(v.BinDir, name)); err == nil {
			return name
		}
	}
	return usual
}
