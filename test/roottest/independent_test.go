package roottest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/provision"
	"github.com/chatd/chatd/test/must"
)

// expected is a chat as a model of chatd's answers says that it is.
type expected struct {
	chat chat.Chat
	// unsure: a call for it was cut off. It may be there, whole, or not at all, awake or asleep.
	unsure bool
	files  map[string]string // content by the name in the home
}

// independent is a checker that reads the host alone, and asks chatd nothing: accounts by
// getent(1), processes, their namespaces and cgroups in /proc, limits in cgroups, packet rules,
// mounts, and files by uid.
type independent struct {
	opt       provision.Options
	namespace map[string]string // the host's, by kind
	processes map[uint32][]int
	cgroups   map[chat.ID][]string
	said      []string
}

// differences lists how the host differs from what is expected, and what it has of nobody's.
func differences(t testing.TB, opt provision.Options, all []expected) []string {
	t.Helper()
	h := independent{opt: opt, namespace: map[string]string{}, processes: map[uint32][]int{},
		cgroups: map[chat.ID][]string{}}
	for _, kind := range []string{"mnt", "pid", "net", "ipc", "uts"} {
		is := must.Get(os.Readlink("/proc/self/ns/" + kind))(t)
		h.namespace[kind] = is
	}
	h.readProcesses(t)
	h.readCgroups(t)
	known := map[uint32]expected{}
	for _, e := range all {
		known[e.chat.UID] = e
		h.look(e)
	}
	h.strangers(t, known)
	return h.said
}

func (h *independent) differs(format string, args ...any) {
	h.said = append(h.said, fmt.Sprintf(format, args...))
}

// readProcesses sorts the host's processes by uid; zombies that wait for init are none.
func (h *independent) readProcesses(t testing.TB) {
	for _, dir := range must.Get(filepath.Glob("/proc/[0-9]*"))(t) {
		fi, err := os.Stat(dir)
		if err != nil {
			continue
		}
		uid := fi.Sys().(*syscall.Stat_t).Uid
		_, rest, _ := strings.Cut(text(dir+"/stat"), ") ")
		if h.ours(uid) && rest != "" && !strings.HasPrefix(rest, "Z") {
			pid, _ := strconv.Atoi(filepath.Base(dir))
			h.processes[uid] = append(h.processes[uid], pid)
		}
	}
}

func (h *independent) ours(uid uint32) bool {
	return uid >= h.opt.UIDs.Low && uid <= h.opt.UIDs.High
}

// chatName is what an id looks like in names of cgroups, units and mounts.
var chatName = regexp.MustCompile(`\b[0-9a-f]{16}\b`)

// readCgroups finds the cgroups of chats, below those of this daemon.
func (h *independent) readCgroups(t testing.TB) {
	out, err := exec.Command("find", "/sys/fs/cgroup", "-type", "d",
		"-path", "*"+h.opt.Cgroup+"*").Output()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) { // a cgroup may go while find looks
		t.Fatal(err)
	}
	for dir := range strings.Lines(string(out)) {
		dir = strings.TrimSpace(dir)
		if id := chatName.FindString(dir[strings.Index(dir, h.opt.Cgroup):]); id != "" {
			h.cgroups[chat.ID(id)] = append(h.cgroups[chat.ID(id)], dir)
		}
	}
}

// look compares one chat.
func (h *independent) look(e expected) {
	if _, err := os.Lstat(e.chat.Home); e.unsure && errors.Is(err, os.ErrNotExist) {
		return // strangers finds what is left of it
	}
	h.account(e.chat)
	h.directories(e.chat)
	for name, want := range e.files {
		got, err := os.ReadFile(filepath.Join(e.chat.Home, name))
		if err != nil || string(got) != want {
			h.differs("%s: %s holds %.40q, %v, and %.40q was acknowledged", e.chat.ExternalID, name,
				got, err, want)
		}
	}
	awake := len(h.processes[e.chat.UID]) > 0
	if !e.unsure && awake != e.chat.Awake {
		h.differs("%s: awake is %t, and it has processes %v", e.chat.ExternalID, e.chat.Awake,
			h.processes[e.chat.UID])
	}
	if awake {
		h.session(e.chat)
	}
}

func (h *independent) account(c chat.Chat) {
	for _, key := range []string{c.User, fmt.Sprint(c.UID)} {
		out, err := exec.Command("getent", "passwd", key).Output()
		field := strings.Split(string(out), ":")
		if err != nil || len(field) != 7 || field[0] != c.User || field[2] != fmt.Sprint(c.UID) ||
			field[5] != c.Home {
			h.differs("%s: getent passwd %s: %q, %v", c.ExternalID, key, out, err)
		}
	}
}

func (h *independent) directories(c chat.Chat) {
	tmp, varTmp := privateTrees(h.opt, c)
	for _, dir := range []string{c.Home, tmp, varTmp} {
		var st unix.Stat_t
		err := unix.Lstat(dir, &st)
		if err != nil || st.Mode != unix.S_IFDIR|0o700 || st.Uid != c.UID || st.Gid != c.UID {
			h.differs("%s: %s is %o of %d:%d, %v", c.ExternalID, dir, st.Mode, st.Uid, st.Gid, err)
		}
	}
}

// session checks the walls of each process of a chat that is awake, and its limits.
func (h *independent) session(c chat.Chat) {
	for _, pid := range h.processes[c.UID] {
		proc := fmt.Sprintf("/proc/%d/", pid)
		status, err := os.ReadFile(proc + "status")
		if err != nil {
			continue // it ended meanwhile
		}
		for _, line := range []string{
			"CapEff:\t0000000000000000", "CapPrm:\t0000000000000000", "NoNewPrivs:\t1",
		} {
			if !strings.Contains(string(status), "\n"+line+"\n") {
				h.differs("%s: process %d has no %q:\n%s", c.ExternalID, pid, line, status)
			}
		}
		for kind, host := range h.namespace {
			if is, err := os.Readlink(proc + "ns/" + kind); err == nil && is == host {
				h.differs("%s: process %d is in the host's %s namespace", c.ExternalID, pid, kind)
			}
		}
		if b, err := os.ReadFile(proc + "cgroup"); err == nil &&
			!strings.Contains(string(b), string(c.ID)) {
			h.differs("%s: process %d is in other cgroups:\n%s", c.ExternalID, pid, b)
		}
	}
	h.limit(c, "pids.max", "pids.max", c.Limits.PidsMax)
	h.limit(c, "memory.max", "memory.limit_in_bytes", c.Limits.MemoryMax)
}

// limit looks for the file of a limit, as cgroup v2 or v1 names it, with the value.
func (h *independent) limit(c chat.Chat, v2, v1 string, want uint64) {
	var found []string
	for _, dir := range h.cgroups[c.ID] {
		for _, file := range []string{v2, v1} {
			b, err := os.ReadFile(filepath.Join(dir, file))
			if err == nil {
				found = append(found, strings.TrimSpace(string(b)))
			}
		}
	}
	if !slices.Contains(found, fmt.Sprint(want)) {
		h.differs("%s: %s is %q in its cgroups, want %d", c.ExternalID, v2, found, want)
	}
}

// strangers lists what the host has of chats that nobody knows: accounts, directories, processes,
// cgroups, mounts; and chats that the packet rules leave out.
func (h *independent) strangers(t testing.TB, known map[uint32]expected) {
	ids := map[chat.ID]bool{}
	for _, e := range known {
		ids[e.chat.ID] = true
		_, err := os.Lstat(e.chat.Home)
		if e.unsure && err != nil {
			delete(known, e.chat.UID)
			delete(ids, e.chat.ID)
		}
	}
	delete(h.processes, h.opt.UIDs.High) // supervisors of runs
	for uid, pids := range h.processes {
		if _, ok := known[uid]; !ok {
			h.differs("%d processes have uid %d, which no chat has: %s", len(pids), uid, commands(pids))
		}
	}
	for id, dirs := range h.cgroups {
		if !ids[id] {
			h.differs("cgroups of no chat: %q", dirs)
		}
	}
	for _, dir := range []string{h.opt.Homes, filepath.Join(h.opt.State, "tmp"),
		filepath.Join(h.opt.State, "vartmp"), "/dev/shm", "/dev/mqueue", "/tmp", "/var/tmp"} {
		h.strangeFiles(t, dir, known)
	}
	for _, file := range must.Get(filepath.Glob(h.opt.Userdb + "/[0-9]*.user"))(t) {
		uid, err := strconv.ParseUint(strings.TrimSuffix(filepath.Base(file), ".user"), 10, 32)
		if _, ok := known[uint32(uid)]; err == nil && h.ours(uint32(uid)) && !ok {
			h.differs("%s is the account of no chat", file)
		}
	}
	h.strangeMounts(t, ids)
	h.packetRules(t, known)
}

// commands shows processes.
func commands(pids []int) string {
	args := []string{"-o", "pid,ppid,stat,lstart,args"}
	for _, pid := range pids {
		args = append(args, "-p", strconv.Itoa(pid))
	}
	out, _ := exec.Command("ps", args...).Output()
	return string(out)
}

func (h *independent) strangeFiles(t testing.TB, dir string, known map[uint32]expected) {
	entries, err := os.ReadDir(dir)
	must.Do(t, ignoreGone(err))
	for _, f := range entries {
		fi, err := f.Info()
		if err != nil {
			continue
		}
		uid := fi.Sys().(*syscall.Stat_t).Uid
		if _, ok := known[uid]; h.ours(uid) && !ok {
			h.differs("%s belongs to uid %d, which no chat has", filepath.Join(dir, f.Name()), uid)
		}
	}
}

func (h *independent) strangeMounts(t testing.TB, ids map[chat.ID]bool) {
	for line := range strings.Lines(string(must.Get(os.ReadFile("/proc/self/mountinfo"))(t))) {
		if !strings.Contains(line, h.opt.Run) && !strings.Contains(line, h.opt.State) {
			continue
		}
		if id := chatName.FindString(line); id != "" && !ids[chat.ID(id)] {
			h.differs("a mount of no chat: %s", line)
		}
	}
}

// ownerRule is a rule for the uids of a profile, as iptables-save(8) prints it.
var ownerRule = regexp.MustCompile(`--uid-owner (\d+)(?:-(\d+))? -m comment --comment "?(\w+)"? -g`)

// packetRules checks that each chat is ruled as its profile is, by both families' packet rules.
func (h *independent) packetRules(t testing.TB, known map[uint32]expected) {
	for _, save := range []string{"iptables-save", "ip6tables-save"} {
		out := must.Get(exec.Command(save, "-t", "filter").Output())(t)
		rules := ownerRule.FindAllStringSubmatch(string(out), -1)
		for uid, e := range known {
			if !slices.ContainsFunc(rules, func(r []string) bool {
				low, _ := strconv.ParseUint(r[1], 10, 32)
				high, err := strconv.ParseUint(r[2], 10, 32)
				if err != nil {
					high = low
				}
				return uint64(uid) >= low && uint64(uid) <= high && r[3] == e.chat.Profile
			}) {
				h.differs("%s: no rule of %s is for uid %d and profile %s:\n%s",
					e.chat.ExternalID, save, uid, e.chat.Profile, out)
			}
		}
	}
}
