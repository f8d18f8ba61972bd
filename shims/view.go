package shims

import (
	"fmt"
	"net/netip"
	"os"
	"path"
	"slices"
	"strconv"

	"github.com/chatd/chatd/chat"
)

// Where things are inside a session.
const (
	InsideDir    = "/opt/chatd"
	InsideShim   = InsideDir + "/chatd-shim" // the program chatd-shim
	InsideShims  = InsideDir + "/shims"      // links to it, first in PATH
	InsideBin    = InsideDir + "/bin"        // links to allowed programs, second in PATH
	InsideBashrc = InsideDir + "/bashrc"     // content [Bashrc]
	InsideTmux   = InsideDir + "/tmux.conf"
	InsidePrompt = InsideDir + "/prompt" // a fifo; one byte per shell that has a prompt
	InsideRun    = "/run/chat"           // 1 MiB, 0700
	Socket       = InsideRun + "/tmux.sock"
)

// runSize bounds /run/chat, in bytes: it holds one socket.
const runSize = 1 << 20

// View is what a session sees of the host. All paths are absolute.
type View struct {
	// User and UID are the chat's; its gid is the same number.
	User string
	UID  uint32
	// Home is the home's path, on the host and inside. It is not below /tmp,
	// /var/tmp, /run, /dev, /proc, /etc or /usr.
	Home string
	// Tmp and VarTmp are the host directories that are /tmp and /var/tmp inside.
	Tmp, VarTmp string
	// ShmSize bounds /dev/shm, in bytes; 0 means 16 MiB.
	ShmSize uint64
	Network chat.Network
	// Resolvers become /etc/resolv.conf.
	Resolvers []netip.Addr
	// Shim is the host path of chatd-shim; ShimDir and BinDir are what
	// [WriteShims] and [WriteBin] made.
	Shim, ShimDir, BinDir string
	// TmuxConf is the content of [InsideTmux].
	TmuxConf []byte
	// PromptFIFO is the host path of the fifo [InsidePrompt]; empty means none.
	PromptFIFO string
	// InfoFD is where bwrap writes {"child-pid": …} and more; 0 means nowhere.
	InfoFD int
	// Without leaves walls out, for tests and probes.
	Without []chat.LayerName
}

// DataFile is a file that exists only inside. bwrap reads its content from a
// descriptor, so that nothing of it lies in a place that two chats share.
type DataFile struct {
	Target  string
	Content []byte
	Mode    os.FileMode
}

// Args are the arguments of bwrap(1) up to but without "--" and the command.
// The content of files[i] is read from descriptor firstFD+i, which the caller
// passes; each may be a pipe as long as all of it is written. bwrap runs as the
// chat, with supplementary groups dropped. It is version 0.8 or later.
//
// Every tmpfs has a size or is read-only, or else the chat had half the host's
// memory to write to outside its home.
func (v View) Args(firstFD int) (args []string, files []DataFile) {
	args = v.namespaceArgs()
	if v.leavesOut(chat.LayerView) {
		// /opt and /run are covered, because the session's own things are put there.
		args = append(args, "--bind", "/", "/", "--tmpfs", "/opt", "--tmpfs", "/run")
	} else {
		args = append(args, systemArgs()...)
	}
	args = append(args, v.kernelArgs()...)
	files = v.dataFiles()
	for i, f := range files {
		args = append(args, "--perms", fmt.Sprintf("%04o", f.Mode.Perm()), "--file", strconv.Itoa(firstFD+i), f.Target)
	}
	args = append(args, v.ownArgs()...)
	if !v.leavesOut(chat.LayerView) {
		args = append(args, "--remount-ro", "/dev", "--remount-ro", "/")
	}
	return append(args, "--chdir", "/"), files
}

func (v View) leavesOut(l chat.LayerName) bool { return slices.Contains(v.Without, l) }

// namespaceArgs has no --die-with-parent: a session outlives the daemon.
func (v View) namespaceArgs() []string {
	args := []string{"--unshare-user", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try", "--new-session", "--clearenv", "--hostname", v.User}
	if !v.leavesOut(chat.LayerProc) {
		args = append(args, "--disable-userns", "--unshare-pid")
	}
	if v.Network == chat.NetworkNone && !v.leavesOut(chat.LayerNetwork) {
		args = append(args, "--unshare-net")
	}
	if v.leavesOut(chat.LayerPrivileges) {
		args = append(args, "--cap-add", "ALL")
	}
	if v.InfoFD > 0 {
		args = append(args, "--info-fd", strconv.Itoa(v.InfoFD))
	}
	return args
}

// systemArgs are the host's programs and libraries. On a merged /usr, /bin is a
// link and is made as one; elsewhere it is a directory and is bound.
func systemArgs() []string {
	args := []string{"--ro-bind", "/usr", "/usr"}
	for _, dir := range []string{"/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"} {
		info, err := os.Lstat(dir)
		switch target := "usr" + dir; {
		case err != nil:
			continue
		case info.Mode()&os.ModeSymlink != 0:
			args = append(args, "--symlink", target, dir)
		default:
			args = append(args, "--ro-bind", dir, dir)
		}
	}
	args = append(args, "--perms", "0755", "--dir", "/etc", "--perms", "0755", "--dir", "/etc/ssl")
	for _, p := range etcBound {
		args = append(args, "--ro-bind-try", p, p)
	}
	return args
}

// kernelArgs are /proc, /dev and the memory-backed places.
func (v View) kernelArgs() []string {
	var args []string
	if v.leavesOut(chat.LayerProc) {
		args = append(args, "--ro-bind", "/proc", "/proc")
	} else {
		args = append(args, "--proc", "/proc")
	}
	size := v.ShmSize
	if size == 0 {
		size = 16 << 20
	}
	args = append(args, "--dev", "/dev", "--perms", "0700", "--size", strconv.Itoa(runSize), "--tmpfs", InsideRun)
	if v.leavesOut(chat.LayerTmp) {
		return append(args, "--bind", "/dev/shm", "/dev/shm", "--bind", "/tmp", "/tmp", "--bind", "/var/tmp", "/var/tmp")
	}
	return append(args, "--perms", "1777", "--size", strconv.FormatUint(size, 10), "--tmpfs", "/dev/shm",
		"--bind", v.Tmp, "/tmp", "--bind", v.VarTmp, "/var/tmp")
}

// ownArgs are the chat's home and chatd's own files. The fifo is bound
// read-only: that keeps its mode and owner, and writing into a fifo is not
// writing to its file system.
func (v View) ownArgs() []string {
	args := []string{"--ro-bind", v.Shim, InsideShim, "--ro-bind", v.ShimDir, InsideShims, "--ro-bind", v.BinDir, InsideBin}
	if v.PromptFIFO != "" {
		args = append(args, "--ro-bind", v.PromptFIFO, InsidePrompt)
	}
	return append(args, "--bind", v.Home, v.Home)
}

// Env is the whole environment of a session and of a run, made from nothing.
// It fits [Plan].Env.
func (v View) Env() []string {
	dirs := InsideShims + ":" + InsideBin
	if v.leavesOut(chat.LayerPath) {
		dirs = "/usr/local/bin:/usr/bin:/bin"
	}
	return []string{
		"HOME=" + v.Home, "USER=" + v.User, "LOGNAME=" + v.User, "SHELL=/bin/bash", "TERM=tmux-256color",
		"LANG=C.UTF-8", "TMPDIR=/tmp", "PATH=" + dirs,
		"XDG_CONFIG_HOME=" + path.Join(v.Home, ".config"), "XDG_CACHE_HOME=" + path.Join(v.Home, ".cache"),
		"XDG_DATA_HOME=" + path.Join(v.Home, ".local/share"), "XDG_STATE_HOME=" + path.Join(v.Home, ".local/state"),
	}
}
