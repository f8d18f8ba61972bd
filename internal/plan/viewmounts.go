package plan

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/chatd/chatd/chat"
)

// Mounts are the entries of the session's file tree in the order of their creation. They are
// the only source of [View.Args] and of chatd show --plan.
//
// Every tmpfs has a size or is read-only: by default a tmpfs holds half the host's memory.
func (v View) Mounts() []chat.Mount {
	own := slices.Concat(v.kernelMounts(), v.fileMounts(), v.ownMounts())
	if v.LeavesOut(chat.LayerView) {
		// The host's /opt and /run are hidden, because chatd's files for the session lie there.
		// The exposed paths are there already, where the host has them.
		host := []chat.Mount{bind("/", "/", chat.ReadWrite), tmpfs("/opt", 0, 0), tmpfs("/run", 0, 0)}
		return slices.Concat(host, own, v.trustMounts(), binds(v.Masked))
	}
	root := []chat.Mount{{Type: chat.MountTmpfs, Target: "/", Mode: chat.ReadOnly}}
	return slices.Concat(root, v.systemMounts(), own, v.trustMounts(), binds(v.Exposed),
		binds(v.Masked))
}

func binds(list []chat.Exposed) (all []chat.Mount) {
	for _, e := range list {
		all = append(all,
			chat.Mount{Type: chat.MountBind, Source: e.Source, Target: e.Target, Mode: e.Mode, By: e.By})
	}
	return all
}

func bind(source, target string, mode chat.Mode) chat.Mount {
	return chat.Mount{Type: chat.MountBind, Source: source, Target: target, Mode: mode}
}

func tmpfs(target string, perm uint32, size uint64) chat.Mount {
	return chat.Mount{Type: chat.MountTmpfs, Target: target, Mode: chat.ReadWrite, Perm: perm, Size: size}
}

// systemMounts are the host's programs and libraries. On a merged /usr, /bin is a link and is
// made as one; elsewhere it is a directory and is bound. A directory of settings is left out if
// a path at or below it is exposed.
func (v View) systemMounts() []chat.Mount {
	all := []chat.Mount{bind("/usr", "/usr", chat.ReadOnly)}
	for _, dir := range []string{"/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"} {
		info, err := os.Lstat(dir)
		switch {
		case err != nil:
			continue
		case info.Mode()&os.ModeSymlink != 0:
			all = append(all,
				chat.Mount{Type: chat.MountLink, Source: "usr" + dir, Target: dir, Mode: chat.ReadOnly})
		default:
			all = append(all, bind(dir, dir, chat.ReadOnly))
		}
	}
	for _, dir := range []string{"/etc", "/etc/ssl"} {
		all = append(all, chat.Mount{Type: chat.MountDir, Target: dir, Mode: chat.ReadOnly, Perm: 0o755})
	}
	for _, p := range append(slices.Clip(etcBound), v.etc().settings...) {
		if slices.ContainsFunc(v.Exposed, func(e chat.Exposed) bool { return chat.Within(e.Target, p) }) {
			continue
		}
		m := bind(p, p, chat.ReadOnly)
		m.Optional = true
		all = append(all, m)
	}
	return all
}

// kernelMounts are /proc, /dev, /run/chat, /dev/shm and the private /tmp and /var/tmp.
func (v View) kernelMounts() []chat.Mount {
	proc := chat.Mount{Type: chat.MountProc, Target: "/proc", Mode: chat.ReadWrite}
	if v.LeavesOut(chat.LayerProc) {
		proc = bind("/proc", "/proc", chat.ReadOnly)
	}
	size := v.Limits.ShmSize
	if size == 0 {
		size = 16 << 20
	}
	dev := chat.Mount{Type: chat.MountDev, Target: "/dev", Mode: chat.ReadOnly}
	if v.LeavesOut(chat.LayerView) {
		dev.Mode = chat.ReadWrite
	}
	all := []chat.Mount{proc, dev, tmpfs(InsideRun, 0o700, runSize)}
	if v.LeavesOut(chat.LayerTmp) {
		return append(all, bind("/dev/shm", "/dev/shm", chat.ReadWrite), bind("/tmp", "/tmp", chat.ReadWrite),
			bind("/var/tmp", "/var/tmp", chat.ReadWrite))
	}
	return append(all, tmpfs("/dev/shm", 0o1777, size), bind(v.Tmp, "/tmp", chat.ReadWrite),
		bind(v.VarTmp, "/var/tmp", chat.ReadWrite))
}

// fileMounts are the files made for this chat, in the order of their content.
func (v View) fileMounts() []chat.Mount {
	var all []chat.Mount
	for _, f := range v.dataFiles() {
		all = append(all,
			chat.Mount{Type: chat.MountFile, Target: f.Target, Mode: chat.ReadOnly, Perm: 0o444})
	}
	return all
}

// ownMounts are the chat's home and chatd's own files. Each fifo is bound read-only, which
// protects its mode and owner: a write to a fifo does not write to its file system.
func (v View) ownMounts() []chat.Mount {
	all := []chat.Mount{bind(v.Shim, InsideShim, chat.ReadOnly), bind(v.ShimDir, InsideShims, chat.ReadOnly),
		bind(v.BinDir, InsideBin, chat.ReadOnly)}
	if v.Archive != "" {
		all = append(all, bind(v.Archive, InsideArchive, chat.ReadOnly))
	}
	if v.PromptFIFO != "" {
		all = append(all, bind(v.PromptFIFO, InsidePrompt, chat.ReadOnly))
	}
	if v.PromptFIFO != "" && v.LogFIFO != "" {
		all = append(all, bind(v.LogFIFO, InsideLog, chat.ReadOnly))
	}
	if v.PolicyDir != "" {
		all = append(all, bind(v.PolicyDir, InsidePolicyDir, chat.ReadOnly))
	}
	return append(all, bind(v.Home, v.Home, chat.ReadWrite))
}

// mountArgs are bwrap's arguments for one entry. A file's content comes from fd. The root needs
// no argument.
func mountArgs(m chat.Mount, fd int) (args []string) {
	if m.Perm != 0 {
		args = append(args, "--perms", fmt.Sprintf("%04o", m.Perm))
	}
	if m.Size != 0 {
		args = append(args, "--size", strconv.FormatUint(m.Size, 10))
	}
	switch m.Type {
	case chat.MountBind:
		return append(args, bindFlag(m), m.Source, m.Target)
	case chat.MountLink:
		return append(args, "--symlink", m.Source, m.Target)
	case chat.MountFile:
		if strings.HasPrefix(m.Target, "/proc/") { // no file can be made there
			return append(args, "--ro-bind-data", strconv.Itoa(fd), m.Target)
		}
		return append(args, "--file", strconv.Itoa(fd), m.Target)
	case chat.MountTmpfs:
		if m.Target == "/" {
			return nil
		}
	}
	return append(args, "--"+m.Type, m.Target)
}

func bindFlag(m chat.Mount) string {
	flag := "--bind"
	if m.Mode == chat.ReadOnly {
		flag = "--ro-bind"
	}
	if m.Optional {
		flag += "-try"
	}
	return flag
}

// remountArgs make read-only the mounts that had to be writable until they were complete, the
// root last.
func remountArgs(mounts []chat.Mount) (args []string) {
	for i := len(mounts) - 1; i >= 0; i-- {
		if m := mounts[i]; m.Mode == chat.ReadOnly && (m.Type == chat.MountDev || m.Type == chat.MountTmpfs) {
			args = append(args, "--remount-ro", m.Target)
		}
	}
	return args
}
