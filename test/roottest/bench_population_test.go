package roottest

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/provision"
	"github.com/chatd/chatd/test/must"
)

// BenchmarkPopulation makes 10,000 chats, of which it wakes 500, and prints what one of each kind
// costs, and which of the host's bounds this many come closest to. CHATD_BENCH_POPULATION is
// "asleep,awake".
func BenchmarkPopulation(b *testing.B) {
	needsRoot(b)
	many := envInts("CHATD_BENCH_POPULATION", []int{10000, 500})
	opt := options(b)
	opt.Profiles["default"] = withCommands(opt.Profiles["default"])
	m := open(b, opt)
	must.Do(b, m.Reap(operator(b.Context()), create(b, m, "the first", "default").ID))
	p := &population{b: b, opt: opt, m: m}
	empty := p.count()
	for i := range many[0] {
		p.chats = append(p.chats, asleep(b, m, fmt.Sprint("many ", i)))
	}
	sleeping := p.count()
	p.say("a chat asleep", sleeping, empty, many[0])
	p.wake(many[1])
	awake := p.count()
	p.say("an awake chat more", awake, sleeping, many[1])
	p.bounds()
	p.reap()
	b.ReportMetric(0, "ns/op")
}

// population drives one daemon, which is this process.
type population struct {
	b     *testing.B
	opt   provision.Options
	m     *manager
	chats []chat.Chat
}

// populated is what the host has, by name; sizes are in KiB.
type populated map[string]uint64

// wake wakes the first chats, four simultaneously.
func (p *population) wake(n int) {
	next := make(chan chat.ID)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for id := range next {
				if _, err := p.m.Wake(operator(p.b.Context()), id); err != nil {
					p.b.Error(err)
				}
			}
		})
	}
	for _, c := range p.chats[:n] {
		next <- c.ID
	}
	close(next)
	wg.Wait()
}

// reap removes all chats.
func (p *population) reap() {
	atOnce(p.chats, func(c chat.Chat) {
		if err := p.m.Reap(operator(p.b.Context()), c.ID); err != nil {
			p.b.Error(err)
		}
	})
}

// count looks at the host as a whole: the machine has nothing else to do.
func (p *population) count() populated {
	c := populated{}
	for _, line := range []string{"SUnreclaim", "KernelStack", "PageTables", "Percpu"} {
		c[line] = kilobytes("/proc/meminfo", line)
	}
	h := independent{opt: p.opt, processes: map[uint32][]int{}, cgroups: map[chat.ID][]string{}}
	h.readProcesses(p.b)
	h.readCgroups(p.b)
	for _, pids := range h.processes {
		c["processes"] += uint64(len(pids))
		for _, pid := range pids {
			c["PSS of its processes"] += kilobytes(fmt.Sprintf("/proc/%d/smaps_rollup", pid), "Pss")
		}
	}
	for _, dirs := range h.cgroups {
		c["cgroup directories"] += uint64(len(dirs))
	}
	for _, dir := range []string{p.opt.Homes, p.opt.State, p.opt.Run, p.opt.Userdb} {
		p.disk(c, dir)
	}
	fds := must.Get(os.ReadDir("/proc/self/fd"))(p.b)
	c["descriptors of chatd"] = uint64(len(fds))
	c["PSS of chatd"] = kilobytes("/proc/self/smaps_rollup", "Pss")
	for _, pid := range egressesOf(p.opt) {
		c["PSS of chatd-egress"] += kilobytes("/proc/"+pid+"/smaps_rollup", "Pss")
	}
	return c
}

// disk adds the inodes and KiB of a tree.
func (p *population) disk(c populated, dir string) {
	must.Do(p.b, filepath.WalkDir(dir, func(name string, _ os.DirEntry, err error) error {
		var st unix.Stat_t
		if err == nil && unix.Lstat(name, &st) == nil {
			c["inodes"]++
			c["disk"] += uint64(st.Blocks) / 2
		}
		return ignoreGone(err)
	}))
}

// say prints what one of n costs.
func (p *population) say(what string, now, before populated, n int) {
	for _, name := range names(now) {
		each := (float64(now[name]) - float64(before[name])) / float64(n)
		if each >= 0.01 || each <= -0.01 {
			fmt.Fprintf(os.Stderr, "%-20s %10.2f %s\n", what, each, name)
		}
	}
}

func names(c populated) []string {
	all := make([]string, 0, len(c))
	for name := range c {
		all = append(all, name)
	}
	slices.Sort(all)
	return all
}

// bound is a resource of the host, and how much of it is in use.
type bound struct {
	name     string
	used, of float64
}

// bounds prints what of the host's is in use, the fullest first.
func (p *population) bounds() {
	c := p.count()
	var fs unix.Statfs_t
	must.Do(p.b, unix.Statfs(p.opt.Homes, &fs))
	var files unix.Rlimit
	must.Do(p.b, unix.Getrlimit(unix.RLIMIT_NOFILE, &files))
	free, all := kilobytes("/proc/meminfo", "MemAvailable"), kilobytes("/proc/meminfo", "MemTotal")
	ptys := must.Get(os.ReadDir("/dev/pts"))(p.b)
	open := strings.Fields(text("/proc/sys/fs/file-nr"))
	bounds := []bound{
		{"memory", float64(all - free), float64(all)},
		{"blocks of the homes' file system", float64(fs.Blocks - fs.Bfree), float64(fs.Blocks)},
		{"inodes of the homes' file system", float64(fs.Files - fs.Ffree), float64(fs.Files)},
		{"descriptors of chatd", float64(c["descriptors of chatd"]), float64(files.Cur)},
		{"processes (kernel.pid_max)", float64(len(glob("/proc/[0-9]*"))),
			figure("/proc/sys/kernel/pid_max")},
		{"terminals of the host (kernel.pty.max)", float64(len(ptys) - 1),
			figure("/proc/sys/kernel/pty/max")},
		{"open files (fs.file-max)", parse(open[0]), parse(open[2])},
		{"uids of the range", float64(len(p.chats)), float64(p.opt.UIDs.High - p.opt.UIDs.Low)},
	}
	slices.SortFunc(bounds, func(x, y bound) int { return cmp.Compare(y.used/y.of, x.used/x.of) })
	for _, x := range bounds {
		fmt.Fprintf(os.Stderr, "%6.2f %% of %s: %.0f of %.0f\n",
			100*x.used/x.of, x.name, x.used, x.of)
	}
}

func glob(pattern string) []string { all, _ := filepath.Glob(pattern); return all }

func text(file string) string { b, _ := os.ReadFile(file); return string(b) }

func figure(file string) float64 { return parse(strings.TrimSpace(text(file))) }

func parse(s string) float64 { n, _ := strconv.ParseFloat(s, 64); return n }
