package roottest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// loadKinds are the kinds of processes that are killed under load: chatd's own four; the first
// process of a session and its tmux; what supervises a background run, and what packs a home.
var loadKinds = []string{"root", "archiver", "front", "init", "egress", "supervisor", "enforcer", "tmux"}

// killOne kills a process of the kind, or all where they act as one. It waits a moment for one.
func (l *underLoad) killOne(which string) {
	var victims []string
	for end := time.Now().Add(longEnough); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if victims = l.loadVictims(which); len(victims) > 0 {
			break
		}
	}
	signalAll(victims, syscall.SIGKILL)
	l.killed[which] += len(victims)
}

func (l *underLoad) loadVictims(which string) []string {
	var all []string
	switch which {
	case "init":
		all = processesNamed("bwrap")
	case "tmux":
		all = processesNamed("tmux: server")
	case "archiver":
		all = processesNamed("chatd-archive")
	case "supervisor":
		for _, pid := range supervisors(l.t) {
			all = append(all, fmt.Sprint(pid))
		}
	default:
		return l.victims(which)
	}
	if len(all) == 0 {
		return nil
	}
	one := l.rand.IntN(len(all))
	return all[one : one+1]
}

// processesNamed are the processes of a name that run as chats of this test: beside it run others.
func processesNamed(comm string) (pids []string) {
	all, _ := filepath.Glob("/proc/[0-9]*/comm")
	for _, file := range all {
		name := filepath.Base(filepath.Dir(file))
		pid, _ := strconv.Atoi(name)
		is, err := os.ReadFile(file)
		if err != nil || string(is) != comm+"\n" {
			continue
		}
		if uid := uidOf(pid); uid >= testUIDs.Low && uid < testUIDs.High {
			pids = append(pids, name)
		}
	}
	return pids
}

// pack archives a chat, and remembers what it had.
func (l *underLoad) pack(ctx context.Context, d *daemon, c chat.Chat) error {
	l.mu.Lock()
	l.archiving[c.ID] = append(l.archiving[c.ID], maps.Clone(l.acknowledged[l.home(c)]))
	l.mu.Unlock()
	return expect.Err(d.Archive(ctx, c.ID, chat.ToArchive{}))
}

// checkArchives looks for what was acknowledged before a chat was archived in the archives of
// this round, each of which is whole. Then there are none; one whose caller is gone ends soon.
func (l *underLoad) checkArchives(t *testing.T) {
	t.Helper()
	var left []string
	ended := comes(func() bool {
		for _, a := range must.Get(l.Archives(t.Context(), chat.ArchiveFilter{}))(t) {
			l.checkArchive(t, a)
		}
		left = archiveFiles(t, l.opt)
		return len(left) == 0
	})
	expect.True(t, ended, "of archives there is %q", left)
	clear(l.archiving)
}

func (l *underLoad) checkArchive(t *testing.T, a chat.Archive) {
	t.Helper()
	l.archives++
	must.Get(l.VerifyArchive(t.Context(), a.Name))(t)
	if _, err := l.Get(t.Context(), a.Chat); errors.Is(err, chat.ErrNotFound) {
		l.unpack(t, a)
	}
	must.Do(t, l.RemoveArchive(t.Context(), a.Name))
}

func (l *underLoad) unpack(t *testing.T, a chat.Archive) {
	t.Helper()
	c := must.Get(l.Unarchive(t.Context(), a.Name))(t)
	was, ok := l.given[c.UID]
	expect.True(t, !ok, "uid %d was chat %s before, and is chat %s", c.UID, was, c.ID)
	l.given[c.UID] = c.ID
	b, err := os.ReadFile(c.Home + "/numbers")
	must.Do(t, ignoreGone(err))
	for _, had := range l.archiving[a.Chat] {
		if len(missingOf(had, b)) == 0 {
			l.acknowledged[l.home(c)] = had
			return
		}
	}
	t.Errorf("%s has %q, and had when it was archived one of %v", a.Name, b, l.archiving[a.Chat])
}

// missingOf are the numbers that are on no line.
func missingOf(numbers map[int]bool, lines []byte) (lost []int) {
	for n := range numbers {
		if !strings.Contains("\n"+string(lines), fmt.Sprintf("\n%d\n", n)) {
			lost = append(lost, n)
		}
	}
	return lost
}

// failpoints is the directory by which programs with the tag failpoints are told what to kill at
// which point, and tell which points they met: see sys.Failpoint.
type failpoints string

func (f failpoints) file() string { return filepath.Join(string(f), "failpoint") }

// order has these processes killed at the point, once; 0 is the one that meets it.
func (f failpoints) order(t *testing.T, point string, pids ...int) {
	t.Helper()
	text := point
	for _, pid := range pids {
		text += fmt.Sprintf(" %d", pid)
	}
	must.Do(t, os.WriteFile(f.file()+".new", []byte(text), 0o600))
	must.Do(t, os.Rename(f.file()+".new", f.file()))
}

// waits reports that the order was not obeyed yet.
func (f failpoints) waits() bool { return exists(f.file())() }

// met are the points that are met while do runs, each once. Where time is short those before a
// step are left out: one of both is enough.
func (f failpoints) met(t *testing.T, do func()) (points []string) {
	t.Helper()
	must.Do(t, os.WriteFile(f.file()+".met", nil, 0o600))
	do()
	text, err := os.ReadFile(f.file() + ".met")
	must.Do(t, errors.Join(err, os.Remove(f.file()+".met")))
	for _, point := range strings.Fields(string(text)) {
		if !slices.Contains(points, point) {
			points = append(points, point)
		}
	}
	if testing.Short() {
		points = slices.DeleteFunc(points, func(point string) bool {
			step, before := strings.CutSuffix(point, ".before")
			return before && slices.Contains(points, step+".after")
		})
	}
	return points
}

// metByRoot are the points of chatd-root in the life of a chat, those of each verb. What a new step
// adds is among them.
func metByRoot(t *testing.T, d *daemon, f failpoints) map[string][]string {
	t.Helper()
	of := map[string][]string{}
	for _, point := range f.met(t, func() {
		c := must.First(d.Create(t.Context(), chat.Spec{ExternalID: "points", Awake: new(false)}))(t)
		must.Get(d.Wake(t.Context(), c.ID))(t)
		must.Get(d.Sleep(t.Context(), c.ID))(t)
		must.Get(d.Wake(t.Context(), c.ID))(t)
		must.Do(t, d.Reap(t.Context(), c.ID))
	}) {
		verb, _, _ := strings.Cut(point, ".")
		of[verb] = append(of[verb], point)
	}
	for _, verb := range []string{"create", "wake", "sleep", "reap"} {
		if len(of[verb]) < 2 {
			t.Fatalf("the points of %s are %q", verb, of[verb])
		}
	}
	return of
}
