package printer

import (
	"flag"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/test/must"
)

var update = flag.Bool("update", false, "write the pages of testdata")

// now is when the answers are read; times without a zone are shown in UTC.
var now = time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC)

func init() { time.Local = time.UTC }

// someLayers has one layer of each state; what a probe said would clear a terminal.
var someLayers = []chat.Layer{
	{Name: chat.LayerHome, State: chat.LayerOn, By: "mode 0700", Probe: "was refused"},
	{Name: chat.LayerEgress, State: chat.LayerOff, Probe: "tried\x1b[2J it",
		Fix: "apt-get install\niptables"},
	{
		Name: chat.LayerCPU, State: chat.LayerWeaker,
		By: "cgroup v1 (legacy), which has its quota later",
		Probe: "a process used up its quota of 250 ms in 100 ms and was throttled for the rest" +
			" of it",
	},
	{Name: chat.LayerMemory, State: chat.LayerUnknown},
}

var someChat = chat.Chat{
	ID: "3bd701762fd7e5ab", User: "chat-3bd701762fd7e5ab", UID: 2013274112,
	ExternalID: "telegram:-100123/\x1b[2J and much more than any table shows", Owner: "bridge",
	Agent: "main", Profile: "web", Phase: chat.Ready, Awake: true, Home: "/srv/3bd701762fd7e5ab",
	Labels:    map[string]string{"team": "ops", "note": "a\tb\n\u202ec"},
	CreatedAt: now.Add(-50 * time.Hour), UsedAt: now.Add(-90 * time.Second),
	Disk:   &chat.DiskUsage{Bytes: 5 << 20, Inodes: 77, Percent: 1},
	Limits: chat.DefaultLimits(), FileRules: "rules.yaml", Layers: someLayers,
	Usage: &chat.Usage{
		MemoryBytes: 12 << 20, MemoryPeak: 3 << 30, Pids: 7,
		CPU:      chat.Duration(1500 * time.Millisecond),
		OOMKills: 1, PidsRefused: 2, Throttled: 3,
	},
}

// someEgress has an entry of each form.
var someEgress = chat.EgressLog{
	Entries: []chat.EgressEvent{
		{Time: now.Add(-time.Hour), Until: now.Add(-59 * time.Minute), Count: 12, Sent: 3 << 20,
			Received: 5, EgressKind: chat.EgressKind{Verdict: chat.EgressAllowed,
				Host: "api.example.com", Port: 443}},
		{Time: now.Add(-2 * time.Minute), Until: now.Add(-90 * time.Second), Count: 2,
			EgressKind: chat.EgressKind{Verdict: chat.EgressRefused, Host: "evil\x1b[2J.example",
				Port: 443, Why: "not listed\nat all"}},
		{Time: now, Until: now.Add(-2 * time.Minute), Count: 1, EgressKind: chat.EgressKind{
			Verdict: chat.EgressRefused, Address: "2001:db8::1", Port: 53, UDP: true, Why: "x"}},
		{Time: now, Until: now, Count: 4, EgressKind: chat.EgressKind{
			Verdict: chat.EgressFailed, Why: "others"}},
	},
	Totals: chat.EgressTotals{Allowed: 12, Refused: 3, Failed: 4},
	Open: chat.EgressOpen{Count: 7, Unknown: "x\x1b[2J", Connections: []chat.EgressConnection{
		{Since: now.Add(-3 * time.Minute), Host: "api\x1b.example", Port: 443, Sent: 5 << 20,
			Received: 2},
		{Since: now, Address: "2001:db8::1", Port: 123, UDP: true, Sent: -1}}},
}

func emptyChat() chat.Chat {
	return chat.Chat{
		ID: "0123456789abcdef", User: "chat-0123456789abcdef", UID: 7, ExternalID: "b",
		Owner: "ada",
		Agent: "main", Profile: "default", Phase: chat.Reaping, Home: "/srv/0123456789abcdef",
		CreatedAt: now.Add(-30 * time.Minute), UsedAt: now.Add(time.Second),
		Limits: chat.DefaultLimits(),
	}
}

// someArchive has an external id and names of files that a terminal would obey.
func someArchive() chat.Archive {
	return chat.Archive{
		Name: "3bd701762fd7e5ab-20261120T160000Z", Chat: "3bd701762fd7e5ab", Owner: "bridge",
		ExternalID: "telegram:-100123/\x1b[2J and much more than any table shows",
		ArchivedAt: now.Add(-92 * time.Hour), Entries: 1234567, Bytes: 5 << 40, Size: 7 << 30,
		Left: 1003, LeftNames: []string{"run/a\x1b[2J\n.sock", "\u202eb", `"c\n"`},
	}
}

// pages are answers by the file in testdata that shows them.
var pages = map[string]func() string{
	"chats": func() string {
		asleep := emptyChat()
		asleep.Phase = chat.Ready
		return Chats([]chat.Chat{someChat, emptyChat(), asleep}, nil, now)
	},
	"chats-disk": func() string {
		disk := map[chat.ID]uint64{someChat.ID: 3 << 40, emptyChat().ID: 0}
		return Chats([]chat.Chat{someChat, emptyChat()}, disk, now)
	},
	"chats-none": func() string { return Chats(nil, map[chat.ID]uint64{}, now) },
	"chat":       func() string { return Chat(someChat, someEgress, now) },
	"chat-empty": func() string { return Chat(emptyChat(), chat.EgressLog{}, now) },
	"chat-archiving": func() string {
		ch := emptyChat()
		ch.Archiving = &chat.ArchiveProgress{Entries: 1234567, Bytes: 3 << 29, Doing: "packing\x1b"}
		return Chat(ch, chat.EgressLog{}, now)
	},
	"archives": func() string {
		kept, expires := someArchive(), now.Add(72*time.Hour)
		kept.Encrypted, kept.ExpiresAt, kept.ArchivedAt = true, &expires, now.Add(-time.Second)
		return Archives([]chat.Archive{someArchive(), kept}, now)
	},
	"archives-none": func() string { return Archives(nil, now) },
	"archived":      func() string { return Archived(someArchive(), now) },
	"archived-kept": func() string {
		a, expires := someArchive(), now.Add(36*time.Hour)
		a.Left, a.LeftNames, a.Kept, a.Encrypted, a.Sent = 0, nil, true, true, true
		a.ExpiresAt, a.Entries, a.Bytes = &expires, 999, 0
		return Archived(a, now)
	},
	"verified": func() string {
		return Verified(chat.ArchiveCheck{Name: someArchive().Name, Size: 3 << 20}) +
			Verified(chat.ArchiveCheck{Name: "a\x1b[2J"})
	},
	"egress": func() string { return EgressLog(someEgress) },
	"egress-open": func() string {
		l := someEgress
		l.Open.Unknown = ""
		return Chat(emptyChat(), l, now)
	},
	"egress-line": func() (text string) {
		for _, c := range someEgress.Open.Connections {
			text += EgressOpenLine(c)
		}
		for _, e := range someEgress.Entries {
			text += EgressLine(e)
		}
		return text
	},
	"host": func() string {
		return Host(chat.Host{
			Kernel: "6.18\x1b[2J", Backend: "cgroup v2", Version: "1.0", Layers: someLayers,
			Chats: 3, Awake: 1,
			Missing: []chat.LayerName{chat.LayerEgress}, Allowed: []chat.LayerName{chat.LayerCPU,
				chat.LayerMemory},
			Broken: []string{"the config\nis bad"}, Findings: []string{"the guard is off\x07"},
		})
	},
	"host-empty": func() string {
		return Host(chat.Host{Version: "1.0",
			Layers: someLayers[:1]})
	},
	"status": func() string {
		return Status(chat.Status{
			Version: "1.0\x1b", Since: now.Add(-3 * time.Hour), Chats: 9, Awake: 4, AtWork: 2,
			Asleep: 5,
			Layers: someLayers[1:], Bounds: []chat.Bound{{Name: "max_awake", Used: 400, Max: 500}},
			Shares: []chat.ShareUse{{Owner: "bridge", Share: "chats", Used: 15000, Limit: 20000}},
			Disks: []chat.Disk{
				{For: "state", Path: "/var/lib/chatd", Size: 10 << 30, Free: 1 << 20, Inodes: 100,
					FreeInodes: 51, ReadOnly: true},
				{For: "homes", Path: "/srv\x1b", Size: 1 << 40, Free: 512},
			},
			Findings: []string{"profile default: the guard is off\n"},
			Failures: []chat.Failure{
				{At: now.Add(-time.Minute), Action: "wake", Chat: "3bd701762fd7e5ab", By: "bridge",
					Error: "cannot\x1b[2J wake"},
				{At: now, Action: "reload", Error: "cannot reload"},
			},
		}, now)
	},
	"status-ready": func() string {
		return Status(chat.Status{Version: "1.0", Since: now, Ready: true}, now)
	},
	"plan": func() string {
		return Plan(chat.Plan{
			ID: "3bd701762fd7e5ab", Profile: "web", User: "chat-3bd701762fd7e5ab", UID: 2013274112,
			StartedAt: &now,
			Mounts: []chat.Mount{
				{Target: "/home", Type: "bind", Mode: "rw", Source: "/srv/3bd701762fd7e5ab",
					By: "home"},
				{Target: "/proc\x1b", Type: "proc", Mode: "ro"},
			},
			Landlock: []chat.PathRight{{Right: "read", Path: "/usr\x1b"}}, LandlockABI: 2,
			Env:     []string{"A=b", "C=\x1b"},
			Network: "host", Namespaces: []string{"pid", "ipc"}, Seccomp: []string{"bpf", "mount"},
			SeccompConditional: []string{"socket"}, Without: []chat.LayerName{chat.LayerCPU,
				chat.LayerMemory},
			Notes: []string{"one", "two\n"},
		})
	},
	"plan-asleep": func() string { return Plan(chat.Plan{ID: "3bd701762fd7e5ab"}) },
	"explained": func() string {
		return Explained("", chat.Explained{
			Verdict: "deny", Rule: "deny *.pem\x1b", Place: "rules.yaml:3", Layer: "global rules",
			ByKernel: true,
			KeptBy:   []string{"masks", "landlock"}, Name: "/srv/a\x1b.pem",
		})
	},
	"explained-allowed": func() string {
		return Explained("", chat.Explained{Verdict: "allow", Name: "/srv/a"})
	},
	"explained-destination": func() string {
		return Destination(chat.Explained{
			Verdict: "allow", Name: "api.example.com:443", Rule: "*.example.com:443",
			Place: "egress of profile web", Layer: "egress", Why: "it is listed\x1b",
		})
	},
	"explained-unlisted": func() string {
		return Destination(chat.Explained{
			Verdict: "deny", Name: "udp:192.0.2.1:53", Why: "it is not listed",
		})
	},
	"explained-command": func() string {
		return Explained("cat a\x1b", chat.Explained{
			Verdict: "allow", Paths: []string{"a\x1b", "b"}, Guard: &chat.Guarded{Verdict: "allow"},
		})
	},
	"explained-guard": func() string {
		return Explained("rm -rf /", chat.Explained{
			Verdict: "allow", Rule: "allow **", Place: "default", Layer: "defaults",
			Guard: &chat.Guarded{
				Verdict: "deny", Rule: "rm", Place: "guard:1", Message: "refused\x1b",
				Command: "rm -rf /",
				Reason:  "it removes", Instead: "remove less",
			},
		})
	},
	"schedules": func() string { return Schedules(someSchedules()) },
	"schedule": func() string {
		return written(func(w io.Writer) error { return Schedule(w, someSchedules()[0]) })
	},
	"schedule-new": func() string {
		s := someSchedules()[1]
		return NewSchedule(s) + written(func(w io.Writer) error { return Schedule(w, s) })
	},
	"runs": func() string { return Runs(someRuns()) },
	"run": func() (text string) {
		for _, r := range someRuns() {
			text += written(func(w io.Writer) error { return Run(w, w, r) })
		}
		return text
	},
	"run-end": func() string {
		var w strings.Builder
		for _, r := range someRuns() {
			if r.Result != nil {
				RunEnd(&w, *r.Result)
			}
		}
		RunEnd(&w, chat.RunResult{TimedOut: true, Signal: "SIGKILL"}) // its exit code says it
		return w.String()
	},
	"processes": func() string {
		return Processes([]chat.Process{
			{PID: 1, Name: "bwrap", State: "sleeping", MemoryBytes: 1 << 20},
			{PID: 20, Name: "a\x1b[2J", State: "running", CPU: chat.Duration(time.Minute),
				Run: "run-1"},
		})
	},
	"reap": func() string {
		hostile, full := emptyChat(), someChat
		hostile.ExternalID = "a\x1b[2J\nb"
		hostile.Work = []string{"a run", "the program \x1b]0;x\a"}
		full.Disk = &chat.DiskUsage{Bytes: 3 << 30, Inodes: 4321, Percent: 75}
		return Loss([]chat.Chat{full, hostile}, now)
	},
	"labels": func() string { return Labels(someChat.Labels) },
	"shared": func() string {
		return Shared(chat.Shared{ToPath: "/home/a\x1b", Bytes: 7, SHA256: "abc"})
	},
}

// written is what write writes, with its error if it has one.
func written(write func(io.Writer) error) string {
	var b strings.Builder
	if err := write(&b); err != nil {
		return err.Error()
	}
	return b.String()
}

// someSchedules end in each of the ways that a last run can.
func someSchedules() []chat.Schedule {
	whole := chat.Schedule{
		ID: "s-1", CreatedAt: now.Add(-time.Hour), CreatedBy: "bridge", Next: &now, Runs: 3,
		Skipped: 2, Missed: 1,
		Spec: chat.ScheduleSpec{Cron: "30 9 * * 1-5", TimeZone: "Europe/Berlin",
			Command: "make\x1b[2J"},
		Last: &chat.ScheduleResult{
			DueAt: now.Add(-time.Minute), StartedAt: now, WallMS: 1500, Exit: 1, Run: "run-1",
			Output:      "a\nb\n",
			OutputBytes: 9000, Error: "",
		},
	}
	fresh := chat.Schedule{
		ID: "s-2", CreatedAt: now, CreatedBy: "ada",
		Spec: chat.ScheduleSpec{Every: chat.Duration(30 * time.Minute), Argv: []string{"echo",
			strings.Repeat("é", 40)}},
	}
	all := []chat.Schedule{whole, fresh}
	for _, last := range []chat.ScheduleResult{
		{DeniedBy: "guard", Error: "denied"}, {Error: "no room\x1b"}, {TimedOut: true,
			Signal: "SIGTERM", WallMS: 1},
		{EndedBy: chat.EndedByMemory, Signal: "SIGKILL"}, {EndedBy: chat.EndedBySleep},
		{Signal: "SIGSEGV"},
	} {
		all = append(all, chat.Schedule{ID: "s",
			Spec: chat.ScheduleSpec{At: "2026-12-24T18:00:00Z"}, Last: &last})
	}
	fresh.RunningSince = &now
	return append(all, fresh)
}

// someRuns are under way, or ended in each of the ways that a run can.
func someRuns() []chat.Run {
	runs := []chat.Run{{ID: "run-1", State: chat.RunRunning, Command: "sleep 60", StartedAt: now}}
	for _, res := range []chat.RunResult{
		{Exit: 3}, {Signal: "SIGSEGV\x1b"}, {TimedOut: true, Signal: "SIGTERM",
			EndedBy: chat.EndedByTimeout},
		{EndedBy: chat.EndedByMemory, Signal: "SIGKILL",
			Why: []string{"memory_max\x1b was reached"}},
		{Truncated: true, Stdout: "out\n", Stderr: "err\n"},
	} {
		runs = append(runs, chat.Run{
			ID: "run-22", State: chat.RunEnded, Command: "a\tb\x1b", StartedAt: now, Result: &res,
		})
	}
	return runs
}

// TestPages compares every answer with its page in testdata, byte by byte. None has a byte that a
// terminal obeys.
func TestPages(t *testing.T) {
	for name, page := range pages {
		got, file := page(), filepath.Join("testdata", name+".txt")
		if *update {
			must.Do(t, os.WriteFile(file, []byte(got), 0o644))
		}
		want := must.Get(os.ReadFile(file))(t)
		if got != string(want) {
			t.Errorf("%s: got\n%s\nwant\n%s", name, got, want)
		}
		if Escape(got) != got {
			t.Errorf("%s: %q", name, got)
		}
	}
}

// TestLimitWords: every limit is shown by its key, one that bounds nothing is not, and sizes are
// read as such.
func TestLimitWords(t *testing.T) {
	l := chat.DefaultLimits()
	const known = "swap_max 0B, pids_max 200, "
	if words := limitWords(l); strings.Contains(words, "fsize") || !strings.Contains(words, known) {
		t.Errorf("by default: %s", words)
	}
	l.FSize = 1 << 20
	if words := limitWords(l); !strings.Contains(words, ", fsize 1.0MiB") {
		t.Errorf("a bound: %s", words)
	}
	for _, f := range reflect.VisibleFields(reflect.TypeFor[chat.Limits]()) {
		if v := reflect.ValueOf(&l).Elem().FieldByIndex(f.Index); v.Kind() == reflect.Uint64 {
			v.SetUint(7)
		}
	}
	for _, f := range reflect.VisibleFields(reflect.TypeFor[chat.Limits]()) {
		if key := f.Tag.Get("yaml"); !f.Anonymous && !strings.Contains(limitWords(l), key+" ") {
			t.Errorf("%s is not shown: %s", key, limitWords(l))
		}
	}
}
