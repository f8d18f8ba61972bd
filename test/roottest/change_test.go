package roottest

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// kernelLimit finds a limit in the files of a chat's cgroup, by the file's name in cgroup v2 and
// v1.
func kernelLimit(t testing.TB, id chat.ID, v2, v1 string) (path, value string) {
	t.Helper()
	for _, dir := range cgroups(string(id)) {
		for _, name := range []string{v2, v1} {
			at := filepath.Join(dir, name)
			if name != "" && strings.Contains(filepath.Base(dir), string(id)) && exists(at)() {
				path, value = at, strings.TrimSpace(string(must.Get(os.ReadFile(at))(t)))
			}
		}
	}
	return path, value
}

func pidsMax(t testing.TB, id chat.ID) string {
	t.Helper()
	_, value := kernelLimit(t, id, "pids.max", "pids.max")
	return value
}

func memoryMax(t testing.TB, id chat.ID) string {
	t.Helper()
	_, value := kernelLimit(t, id, "memory.max", "memory.limit_in_bytes")
	return value
}

func patchAs(ctx context.Context, t testing.TB, m *manager, id chat.ID, text string) (chat.Chat, error) {
	t.Helper()
	var p chat.Patch
	must.Do(t, json.Unmarshal([]byte(text), &p))
	return m.Patch(ctx, id, p)
}

func patched(t testing.TB, m *manager, id chat.ID, text string) chat.Chat {
	t.Helper()
	c, err := patchAs(operator(t.Context()), t, m, id, text)
	must.True(t, err == nil, "%s: %v", text, err)
	return c
}

// wantChanged compares what an answer says of a patch.
func wantChanged(t testing.TB, c chat.Chat, now, next, retried string) {
	t.Helper()
	if c.Changed == nil {
		t.Error("the answer does not say what became of it")
		return
	}
	got := []string{strings.Join(c.Changed.Now, " "), strings.Join(c.Changed.NextWake, " "), strings.Join(c.Changed.Retried, " ")}
	if want := []string{now, next, retried}; !slices.Equal(got, want) {
		t.Errorf("now, next wake, retried: %q, want %q (%s)", got, want, c.Changed.Why)
	}
}

// TestChangeLimits: limits change in the cgroup of a living chat, and of no other; they hold after
// sleep, and what somebody else writes there is put back.
func TestChangeLimits(t *testing.T) {
	opt := options(t)
	m := open(t, opt)
	ctx := operator(t.Context())
	c, other := create(t, m, "changed", "default"), create(t, m, "beside", "default")
	began := run(t, m, c.ID, "cat /proc/1/stat | cut -d' ' -f22").Stdout
	got := patched(t, m, c.ID, `{"limits":{"pids_max":77,"memory_max":134217728,"nofile":2048},"labels":{"k":"v"}}`)
	wantChanged(t, got, "labels limits.memory_max limits.pids_max", "limits.nofile", "")
	if pidsMax(t, c.ID) != "77" || memoryMax(t, c.ID) != "134217728" || pidsMax(t, other.ID) != "200" {
		t.Errorf("pids %s, memory %s, of the other %s", pidsMax(t, c.ID), memoryMax(t, c.ID), pidsMax(t, other.ID))
	}
	if got.Limits.PidsMax != 77 || !slices.Equal(got.OwnLimits, []string{"memory_max", "nofile", "pids_max"}) ||
		!slices.Equal(got.OldPlan, []string{"limits.nofile"}) || got.Labels["k"] != "v" {
		t.Errorf("%+v", got)
	}
	now := run(t, m, c.ID, "cat /proc/1/stat | cut -d' ' -f22").Stdout
	expect.True(t, now == began, "another session: %s, was %s", now, began)
	n := len(auditLines(t, opt, `"patch"`, string(c.ID), `"limits.pids_max":"77"`))
	expect.True(t, n == 2, "%d lines in the audit log, want intent and done", n)
	t.Run("drift", func(t *testing.T) {
		path, _ := kernelLimit(t, c.ID, "pids.max", "pids.max")
		must.Do(t, os.WriteFile(path, []byte("max"), 0))
		m.Reconcile(ctx)
		expect.Equal(t, pidsMax(t, c.ID), "77", "after reconcile")
		if n := len(auditLines(t, opt, `"mend"`, string(c.ID), "limits: pids_max", `"done"`)); n != 1 {
			t.Errorf("%d lines in the audit log", n)
		}
	})
	t.Run("sleep and wake", func(t *testing.T) {
		must.Get(m.Sleep(ctx, c.ID))(t)
		wantChanged(t, patched(t, m, c.ID, `{"limits":{"pids_max":66}}`), "", "limits.pids_max", "")
		woken := must.Get(m.Wake(ctx, c.ID))(t)
		if len(woken.OldPlan) > 0 || pidsMax(t, c.ID) != "66" {
			t.Errorf("old plan %v, pids %s", woken.OldPlan, pidsMax(t, c.ID))
		}
		expect.Equal(t, run(t, m, c.ID, "ulimit -n").Stdout, "2048\n", "nofile")
	})
	t.Run("back to the profile", func(t *testing.T) {
		got := patched(t, m, c.ID, `{"limits":null}`)
		if got.Limits != chat.DefaultLimits() || len(got.OwnLimits) > 0 || pidsMax(t, c.ID) != "200" {
			t.Errorf("%+v, pids %s", got.Limits, pidsMax(t, c.ID))
		}
	})
	t.Run("two at once", func(t *testing.T) {
		var both sync.WaitGroup
		for _, text := range []string{`{"limits":{"pids_max":50}}`, `{"limits":{"memory_max":100663296}}`} {
			both.Go(func() { patched(t, m, c.ID, text) })
		}
		both.Wait()
		if pidsMax(t, c.ID) != "50" || memoryMax(t, c.ID) != "100663296" {
			t.Errorf("pids %s, memory %s", pidsMax(t, c.ID), memoryMax(t, c.ID))
		}
	})
}

// TestChangeMemoryHeld: memory_max below what a chat holds is refused as a whole; forced it is
// recorded, and the chat is not said to have it before it has.
func TestChangeMemoryHeld(t *testing.T) {
	opt := options(t)
	m := open(t, opt)
	ctx := operator(t.Context())
	c := create(t, m, "held", "default")
	r := startRun(t, m, c.ID, chat.RunSpec{Command: "{ head -c 67108864 /dev/zero; touch full; exec sleep 1000; } | tail -c 67108864 > /dev/null"})
	until(t, "the memory is held", exists(filepath.Join(c.Home, "full")))
	_, err := patchAs(ctx, t, m, c.ID, `{"limits":{"memory_max":33554432,"pids_max":88},"labels":{"k":"v"}}`)
	expect.Says(t, err, chat.ErrBusy, "it holds", "below what it holds")
	now, err := m.Get(ctx, c.ID)
	if err != nil || now.Limits != chat.DefaultLimits() || len(now.Labels) > 0 || pidsMax(t, c.ID) != "200" {
		t.Errorf("a refused change changed: %+v, %v, pids %s", now.Limits, now.Labels, pidsMax(t, c.ID))
	}
	if _, value := kernelLimit(t, c.ID, "memory.max", ""); value != "" {
		return // forced, cgroup v2 ends the processes: there is nothing to wait for
	}
	got := patched(t, m, c.ID, `{"limits":{"memory_max":33554432,"pids_max":88},"force":true}`)
	if !slices.Contains(got.Changed.Retried, "limits.memory_max") || got.Changed.Why == "" ||
		!slices.Contains(got.OldPlan, "limits.memory_max") || pidsMax(t, c.ID) != "88" {
		t.Errorf("forced: %+v, old plan %v, pids %s", got.Changed, got.OldPlan, pidsMax(t, c.ID))
	}
	n := len(auditLines(t, opt, `"patch"`, `"failed"`, string(c.ID), `"force":"true"`))
	expect.True(t, n == 1, "%d lines of what waits", n)
	h, err := m.Host(ctx)
	expect.True(t, err == nil && strings.Contains(strings.Join(h.Findings, "\n"), "memory_max"),
		"findings %v, %v", h.Findings, err)
	must.Do(t, m.SignalRun(ctx, c.ID, r.ID, chat.RunSignal{Signal: "KILL"}))
	until(t, "the limit is in force", func() bool {
		m.Reconcile(ctx)
		return memoryMax(t, c.ID) == "33554432"
	})
	now, err = m.Get(ctx, c.ID)
	expect.True(t, err == nil && len(now.OldPlan) == 0, "old plan %v, %v", now.OldPlan, err)
}

// TestChangeByBridge: a bridge changes its own chat within what its profiles give, and what is
// refused is audited.
func TestChangeByBridge(t *testing.T) {
	opt := options(t)
	edit(opt, "web", func(p *chat.Profile) { p.Bridges = []string{"ada"} })
	edit(opt, "closed", func(p *chat.Profile) { p.Egress, p.Bridges = opt.Profiles["web"].Egress, []string{} })
	m := open(t, opt)
	as := func(name string) context.Context { return asBridge(t.Context(), name) }
	spec := chat.Spec{ExternalID: "a bridge's", Profile: "default"}
	ada, bob := must.First(m.Create(as("ada"), spec))(t), must.First(m.Create(as("bob"), spec))(t)
	for _, c := range []struct {
		by   string
		id   chat.ID
		text string
		want error
	}{
		{"ada", ada.ID, `{"limits":{"pids_max":100}}`, nil},
		{"ada", ada.ID, `{"limits":{"pids_max":201}}`, chat.ErrDenied},
		{"ada", ada.ID, `{"limits":{"cpu_quota":"250ms","cpu_period":"100ms"},"labels":{"k":"v"}}`, chat.ErrDenied},
		{"ada", bob.ID, `{"limits":{"pids_max":100}}`, chat.ErrNotFound},
		{"bob", bob.ID, `{"profile":"web"}`, chat.ErrDenied},
		{"bob", bob.ID, `{"profile":"none"}`, chat.ErrInvalid},
		{"ada", ada.ID, `{"profile":"web","env":{"A":"1"}}`, nil},
		{"ada", ada.ID, `{"env":{"LD_PRELOAD":"x"}}`, chat.ErrInvalid},
		{"ada", ada.ID, `{"egress_add":["0.0.0.0/0:1"]}`, chat.ErrDenied},
	} {
		var p chat.Patch
		must.Do(t, json.Unmarshal([]byte(c.text), &p))
		expect.Is(t, expect.Err(m.Patch(as(c.by), c.id, p)), c.want, "%s %s", c.by, c.text)
	}
	for rule, n := range map[string]int{"limits": 2, "bridges": 1, "egress_may_add": 1} {
		got := auditLines(t, opt, `"patch"`, `"denied"`, `"rule":"`+rule+`"`)
		expect.True(t, len(got) == n, "%s: %d refusals are audited, want %d", rule, len(got), n)
	}
	// An operator may more, and a bridge keeps what it was given.
	patched(t, m, ada.ID, `{"limits":{"memory_max":536870912}}`)
	_, err := patchAs(as("ada"), t, m, ada.ID, `{"limits":{"pids_max":91}}`)
	expect.Is(t, err, chat.ErrBusy, "limits right after limits")
	var c chat.Chat
	until(t, "limits may change again", func() bool {
		c, err = patchAs(as("ada"), t, m, ada.ID, `{"limits":{"pids_max":90}}`)
		return !errors.Is(err, chat.ErrBusy)
	})
	expect.True(t, err == nil && c.Limits.MemoryMax == 512<<20, "%+v, %v", c.Limits, err)
	// Where an operator put it into a profile that is not for the bridge, it stays.
	patched(t, m, ada.ID, `{"profile":"closed"}`)
	_, err = patchAs(as("ada"), t, m, ada.ID, `{"profile":"web"}`)
	expect.Is(t, err, chat.ErrDenied, "out of a profile of others")
	patched(t, m, ada.ID, `{"profile":"web"}`)
	// It asks for its chat as ever, and finds it.
	again, created, err := m.Create(as("ada"), spec)
	if err != nil || created || again.ID != ada.ID || !slices.Equal(again.Ignored, []string{"profile"}) {
		t.Errorf("%v %v %v", created, again.Ignored, err)
	}
	spec.Profile = "web"
	expect.Is(t, expect.Err(m.Create(as("bob"), spec)), chat.ErrExists,
		"another profile for a chat that was not changed")
}

// TestChangeProfile: a chat that moves to another profile has its egress and limits at once, and is
// marked with what its session began with. The session lives on, also over a restart of chatd. The
// uid, the home and what is in it stay.
func TestChangeProfile(t *testing.T) {
	newInternet(t)
	opt := named(t, "api.example.test:7000")
	edit(opt, "named", func(p *chat.Profile) { p.Limits.PidsMax, p.Env = 150, map[string]string{"OF": "named"} })
	edit(opt, "other", func(p *chat.Profile) {
		p.Network, p.Egress = chat.NetworkOwn, parsedAllows(t, "ssh.example.test:22")
		p.Limits.PidsMax, p.Env, p.AllowNetlink = 99, map[string]string{"OF": "other"}, true
	})
	m := open(t, opt)
	ctx := operator(t.Context())
	a, b := inmateOf(t, m, "moves a", "named"), inmateOf(t, m, "moves b", "named")
	const refused = "ECONNRESET EOF EPIPE NXDOMAIN"
	check := func(when string) {
		t.Helper()
		outcomes(t, when+", of the new profile", a.try(t, "say", "ssh.example.test:22", "x"), "ok")
		outcomes(t, when+", of the old one", a.try(t, "say", "api.example.test:7000", "x"), refused)
		outcomes(t, when+", the neighbour", b.try(t, "say", "api.example.test:7000", "x"), "ok")
		outcomes(t, when+", the neighbour, elsewhere", b.try(t, "say", "ssh.example.test:22", "x"), refused)
		if pidsMax(t, a.ID) != "99" || pidsMax(t, b.ID) != "150" {
			t.Errorf("%s: pids %s and %s", when, pidsMax(t, a.ID), pidsMax(t, b.ID))
		}
	}
	outcomes(t, "before", a.try(t, "say", "api.example.test:7000", "x"), "ok")
	began := run(t, m, a.ID, "cat /proc/1/stat | cut -d' ' -f22; echo kept > file").Stdout
	got := patched(t, m, a.ID, `{"profile":"other"}`)
	wantChanged(t, got, "egress limits.pids_max profile", "allow_netlink env", "")
	expect.True(t, got.UID == a.UID && slices.Equal(got.OldPlan, []string{"allow_netlink", "env"}),
		"uid %d, was %d; old plan %v", got.UID, a.UID, got.OldPlan)
	check("moved")
	// One that began without a network moves to one: it has it at the next wake.
	lone := inmateOf(t, m, "moves alone", "default")
	wantChanged(t, patched(t, m, lone.ID, `{"profile":"named"}`), "limits.pids_max profile", "egress env network", "")
	m.restart(t, opt)
	check("another chatd")
	now, err := m.Get(ctx, a.ID)
	expect.True(t, err == nil && slices.Equal(now.OldPlan, []string{"allow_netlink", "env"}),
		"after a restart: old plan %v, %v", now.OldPlan, err)
	r := run(t, m, a.ID, "cat /proc/1/stat | cut -d' ' -f22").Stdout
	expect.True(t, r == began, "another session: %q, was %q", r, began)
	if now, err := m.Get(ctx, lone.ID); err != nil || !now.Awake || !slices.Contains(now.OldPlan, "network") {
		t.Errorf("after a restart, without a network: awake %v, old plan %v, %v", now.Awake, now.OldPlan, err)
	}
	must.Do(t, errors.Join(expect.Err(m.Sleep(ctx, lone.ID)), expect.Err(m.Wake(ctx, lone.ID))))
	outcomes(t, "with a network", lone.try(t, "say", "api.example.test:7000", "x"), "ok")
	must.Get(m.Sleep(ctx, a.ID))(t)
	woken, err := m.Wake(ctx, a.ID)
	expect.True(t, err == nil && len(woken.OldPlan) == 0, "woken: %v, %v", woken.OldPlan, err)
	check("woken")
	r = run(t, m, a.ID, "echo $OF; cat file; id -u").Stdout
	expect.True(t, strings.HasPrefix(r, "other\nkept\n"), "woken: %q", r)
	// Back again, and to one without a network.
	patched(t, m, a.ID, `{"profile":"named"}`)
	outcomes(t, "back", a.try(t, "say", "api.example.test:7000", "x"), "ok")
	outcomes(t, "back, of the other", a.try(t, "say", "ssh.example.test:22", "x"), refused)
	got = patched(t, m, a.ID, `{"profile":"default"}`)
	expect.True(t, slices.Contains(got.OldPlan, "network"), "old plan %v", got.OldPlan)
	outcomes(t, "nowhere", a.try(t, "say", "api.example.test:7000", "x"), refused)
}

// TestReloadLimits: what a reload changes of a profile is in force in its awake chats, or marked.
func TestReloadLimits(t *testing.T) {
	newInternet(t)
	opt := named(t, "api.example.test:7000")
	m := open(t, opt)
	ctx := operator(t.Context())
	a, own := inmateOf(t, m, "reloaded a", "named"), create(t, m, "its own", "named")
	patched(t, m, own.ID, `{"limits":{"pids_max":44}}`)
	all := maps.Clone(opt.Profiles)
	p := all["named"]
	p.Limits.PidsMax, p.Limits.MemoryMax = 123, 192<<20
	p.Env = map[string]string{"NEW": "1"}
	p.Egress = parsedAllows(t, "ssh.example.test:22")
	all["named"] = p
	must.Do(t, m.ReloadProfiles(ctx, nil, all))
	if pidsMax(t, a.ID) != "123" || memoryMax(t, own.ID) != "201326592" || pidsMax(t, own.ID) != "44" {
		t.Errorf("pids %s, and of its own %s", pidsMax(t, a.ID), pidsMax(t, own.ID))
	}
	outcomes(t, "what came", a.try(t, "say", "ssh.example.test:22", "x"), "ok")
	outcomes(t, "what went", a.try(t, "say", "api.example.test:7000", "x"), "ECONNRESET EOF EPIPE NXDOMAIN")
	now, err := m.Get(ctx, a.ID)
	expect.True(t, err == nil && slices.Equal(now.OldPlan, []string{"env"}) && now.Limits.PidsMax == 123,
		"old plan %v, %+v, %v", now.OldPlan, now.Limits, err)
	p.Limits.PidsMax = 1
	all["named"] = p
	if err := m.ReloadProfiles(ctx, nil, all); !errors.Is(err, chat.ErrInvalid) || pidsMax(t, a.ID) != "123" {
		t.Errorf("limits that cannot be: %v, pids %s", err, pidsMax(t, a.ID))
	}
}

// TestPatchKilled: chatd-root is killed when a change is recorded, and when it is in force and
// nobody was told. The next one brings the session to the record.
func TestPatchKilled(t *testing.T) {
	opt := options(t)
	d := startDaemon(t, opt, "")
	c := must.First(d.Create(t.Context(), chat.Spec{ExternalID: "killed"}))(t)
	d.kill()
	for point, text := range map[string]string{
		"patch.record.after": `{"limits":{"pids_max":55},"env":{"A":"patch.record.after"}}`,
		"patch.live.after":   `{"limits":{"pids_max":55},"env":{"A":"patch.live.after"}}`,
	} {
		d = startDaemon(t, opt, "")
		must.Get(d.Patch(t.Context(), c.ID, chat.Patch{NoLimits: true, NoEnv: true}))(t)
		d.kill()
		d = startDaemon(t, opt, point)
		var p chat.Patch
		must.Do(t, json.Unmarshal([]byte(text), &p))
		expect.True(t, expect.Err(d.Patch(t.Context(), c.ID, p)) != nil, "%s was never reached", point)
		d.killed(t)
		d = startDaemon(t, opt, "")
		now, err := d.Get(t.Context(), c.ID)
		if err != nil || !now.Awake || now.Limits.PidsMax != 55 || now.Env["A"] != point ||
			!slices.Equal(now.OldPlan, []string{"env"}) || pidsMax(t, c.ID) != "55" {
			t.Errorf("%s: %+v, pids %s, %v", point, now, pidsMax(t, c.ID), err)
		}
		d.kill()
	}
	startDaemon(t, opt, "")
}

// TestChangeProfileSees: a session that sees paths of the host under the file rules of its profile
// meets no other profile's rules there. The chat moves while it sleeps.
func TestChangeProfileSees(t *testing.T) {
	shared := "/opt/change-" + filepath.Base(t.TempDir())
	t.Cleanup(func() { must.Do(t, os.RemoveAll(shared)) })
	must.Do(t, errors.Join(os.MkdirAll(shared+"/closed", 0o755),
		os.WriteFile(shared+"/closed/f", []byte("closed by rules\n"), 0o644)))
	opt := ruledOptions(t, `access: {useDefaults: false, deny: [/data/closed, "~/note"]}`)
	expose(opt, "ruled", shared, "/data")
	m := open(t, opt)
	ctx := operator(t.Context())
	c := create(t, m, "sees", "ruled")
	putFile(t, c, "note", "a note\n")
	look := func() string { return run(t, m, c.ID, "cat /data/closed/f ~/note; ls /data").Stdout }
	if got := look(); got != "" && got != "closed\n" {
		t.Errorf("control: %q", got)
	}
	expect.Says(t, expect.Err(patchAs(ctx, t, m, c.ID, `{"profile":"default","labels":{"k":"v"}}`)),
		chat.ErrWrongPhase, "put it to sleep first", "awake")
	if got := look(); strings.Contains(got, "by rules") || strings.Contains(got, "note") {
		t.Errorf("after it was refused: %q", got)
	}
	must.Get(m.Sleep(ctx, c.ID))(t)
	patched(t, m, c.ID, `{"profile":"default"}`)
	must.Get(m.Wake(ctx, c.ID))(t)
	expect.Equal(t, look(), "a note\n", "in the new profile")
	// And back, awake: it sees nothing of the host, and has the rules at once.
	patched(t, m, c.ID, `{"profile":"ruled"}`)
	expect.Equal(t, look(), "", "with the rules again")
}

// TestChangeDisk: what a chat may have on disk is of its uid: a change holds immediately, also while
// the chat sleeps, and by a reload.
func TestChangeDisk(t *testing.T) {
	opt := options(t)
	m := open(t, opt)
	c := create(t, m, "disk", "default")
	wantChanged(t, patched(t, m, c.ID, `{"limits":{"disk_max":104857600}}`), "limits.disk_max", "", "")
	must.Get(m.Sleep(operator(t.Context()), c.ID))(t)
	got := patched(t, m, c.ID, `{"limits":{"inodes_max":1000,"pids_max":50}}`)
	wantChanged(t, got, "limits.inodes_max", "limits.pids_max", "")
	expect.True(t, got.Limits.DiskMax == 100<<20 && got.Limits.InodesMax == 1000, "%+v", got.Limits)
}
