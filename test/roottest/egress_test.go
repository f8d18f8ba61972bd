package roottest

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// TestEgressOfOneChat: a chat gets what its profile admits and loses what is taken away, in its
// open
// session; its neighbour does not.
func TestEgressOfOneChat(t *testing.T) {
	newInternet(t)
	opt := named(t, "api.example.test:7000", "203.0.113.2:7000")
	edit(opt, "named", func(p *chat.Profile) {
		p.EgressMayAdd = parsedAllows(t, "*.example.test:22-7000", "10.213.0.0/24:8000-9000")
	})
	m := open(t, opt)
	a, b := inmateOf(t, m, "change a", "named"), inmateOf(t, m, "change b", "named")
	const refused = "ECONNRESET EOF EPIPE NXDOMAIN"
	outcomes(t, "before", a.try(t, "say", "ssh.example.test:22", "x"), refused)
	outcomes(t, "before", a.try(t, "dial", "10.213.0.2:8000"), refused)

	patchEgress(t, m, a.ID, `{"egress_add": ["ssh.example.test:22", "10.213.0.2:8000"]}`)
	outcomes(t, "a name added", a.try(t, "say", "ssh.example.test:22", "x"), "ok")
	outcomes(t, "an address added", a.try(t, "dial", "10.213.0.2:8000"), "ok")
	outcomes(t, "of the profile", a.try(t, "say", "api.example.test:7000", "x"), "ok")
	outcomes(t, "the neighbour, a name", b.try(t, "say", "ssh.example.test:22", "x"), refused)
	outcomes(t, "the neighbour, an address", b.try(t, "dial", "10.213.0.2:8000"), refused)

	t.Run("what is taken away is cut", func(t *testing.T) {
		connect := func(name, to string) {
			startRun(t, m, a.ID, chat.RunSpec{Argv: []string{"bash", "-c",
				"exec 3<>/dev/tcp/" + to + "; touch " + name + "; cat <&3; touch " + name + "-ended"}})
			until(t, name+" is connected", exists(a.in(name)))
		}
		connect("by-name", "api.example.test/7000")
		connect("by-address", "203.0.113.2/7000")
		patchEgress(t, m, a.ID, `{"egress_remove": ["api.example.test:7000"]}`)
		until(t, "the connection by name ends", exists(a.in("by-name-ended")))
		expect.True(t, !exists(a.in("by-address-ended"))(),
			"a connection to what is still listed was cut")
		outcomes(t, "again", a.try(t, "say", "api.example.test:7000", "x"), refused)
		outcomes(t, "the neighbour", b.try(t, "say", "api.example.test:7000", "x"), "ok")
	})
	t.Run("it outlives sleep and chatd", func(t *testing.T) {
		must.Get(m.Sleep(operator(t.Context()), a.ID))(t)
		m.restart(t, opt)
		outcomes(t, "added", a.try(t, "say", "ssh.example.test:22", "x"), "ok")
		outcomes(t, "taken away", a.try(t, "say", "api.example.test:7000", "x"), refused)
	})
	t.Run("what the profile does not admit", func(t *testing.T) {
		for _, text := range []string{"ssh.example.test:21", "example.org:443", "10.213.0.2:7000",
			"169.254.169.254:8000", "0.0.0.0/0:8000"} {
			err := tryPatch(t, m, a.ID, `{"egress_add": ["`+text+`"]}`)
			expect.Is(t, err, chat.ErrDenied, "%s", text)
		}
		n := len(auditLines(t, opt, `"rule":"egress_may_add"`))
		expect.True(t, n == 5, "%d refusals are audited, want 5", n)
		expect.Is(t, tryPatch(t, m, a.ID, `{"egress_remove": ["example.org:443"]}`), chat.ErrInvalid, "")
		outcomes(t, "what was", a.try(t, "say", "ssh.example.test:22", "x"), "ok")
	})
	t.Run("at create", func(t *testing.T) {
		spec := chat.Spec{ExternalID: "change c", Profile: "named", EgressAdd: parsedAllows(t,
			"ssh.example.test:22")}
		c, created, err := m.Create(operator(t.Context()), spec)
		if err != nil || !created || len(c.Egress) != 3 {
			t.Fatal(c.Egress, created, err)
		}
		spec.EgressAdd = parsedAllows(t, "other.example.test:22")
		if c, _, err = m.Create(operator(t.Context()), spec); err != nil || len(c.Ignored) != 1 {
			t.Errorf("a create that finds the chat: %v, %v", c.Ignored, err)
		}
		spec.ExternalID, spec.EgressAdd = "change d", parsedAllows(t, "example.org:443")
		if _, _, err = m.Create(operator(t.Context()), spec); !errors.Is(err, chat.ErrDenied) {
			t.Error(err)
		}
	})
}

func parsedAllows(t testing.TB, texts ...string) (all []chat.Allow) {
	t.Helper()
	for _, text := range texts {
		all = append(all, must.Get(chat.ParseAllow(text))(t))
	}
	return all
}

func tryPatch(t testing.TB, m *manager, id chat.ID, text string) error {
	t.Helper()
	var p chat.Patch
	must.Do(t, p.UnmarshalJSON([]byte(text)))
	_, err := m.Patch(operator(t.Context()), id, p)
	return err
}

func patchEgress(t testing.TB, m *manager, id chat.ID, text string) {
	t.Helper()
	must.Do(t, tryPatch(t, m, id, text))
}

// egressLog is what is kept of a chat's connections.
func egressLog(t testing.TB, m *manager, id chat.ID) chat.EgressLog {
	t.Helper()
	return must.Get(m.EgressLog(operator(t.Context()), id))(t)
}

// told counts what is told of a verdict and a destination.
func told(l chat.EgressLog, v chat.EgressVerdict, to string) (n chat.EgressEvent) {
	for _, e := range l.Entries {
		if e.Verdict == v && e.To() == to {
			n.Add(e)
		}
	}
	return n
}

// TestOwnNetworkLog: what was carried is told with its bytes, and what was refused with its reason,
// which the audit log has too; of a chat to nobody else.
func TestOwnNetworkLog(t *testing.T) {
	newInternet(t)
	opt := named(t, usual...)
	m := open(t, opt)
	a, b := inmateOf(t, m, "log a", "named"), inmateOf(t, m, "log b", "named")
	outcomes(t, "listed", a.try(t, "say", "api.example.test:7000", "hello"), "ok")
	const refused = "ECONNRESET EOF EPIPE NXDOMAIN"
	for _, c := range []struct{ to, told, audited string }{
		{"api.example.test:22", "api.example.test:22", `"host":"api.example.test"`},
		{"203.0.113.9:9", "203.0.113.9:9", `"address":"203.0.113.9"`},
		{"other.example.test:7000", "other.example.test", `"host":"other.example.test"`},
	} {
		outcomes(t, c.to, a.try(t, "say", c.to, "x"), refused)
		until(t, c.to+" is told", func() bool {
			return told(egressLog(t, m, a.ID), chat.EgressRefused, c.told).Count > 0
		})
		until(t, c.to+" is audited", func() bool {
			return len(auditLines(t, opt, `"egress"`, `"denied"`, string(a.ID), c.audited)) > 0
		})
	}
	until(t, "the connection is told", func() bool {
		e := told(egressLog(t, m, a.ID), chat.EgressAllowed, "api.example.test:7000")
		return e.Count == 1 && e.Sent == int64(len("hello\n")) &&
			e.Received == int64(len("outside heard hello\n"))
	})
	l := egressLog(t, m, a.ID)
	expect.True(t, l.Totals.Allowed == 1 && l.Totals.Refused >= 3, "%+v", l)
	lines := auditLines(t, opt, `"egress"`, `"api.example.test"`, "7000")
	expect.True(t, len(lines) == 0, "audited, and was allowed: %s", lines)
	l = egressLog(t, m, b.ID)
	expect.True(t, len(l.Entries) == 0, "the neighbour has %+v", l)
	t.Run("a session's last connections", func(t *testing.T) { lastConnections(t, m, a) })
	must.Do(t, m.Reap(operator(t.Context()), a.ID))
	expect.Is(t, expect.Err(m.EgressLog(operator(t.Context()), a.ID)), chat.ErrNotFound, "after the reap")
}

// lastConnections: what ends with the session is told when its sleep is over.
func lastConnections(t *testing.T, m *manager, a inmate) {
	startRun(t, m, a.ID, chat.RunSpec{Argv: []string{"bash", "-c",
		"exec 3<>/dev/tcp/ssh.example.test/22; read line <&3; touch connected; cat <&3"}})
	until(t, "the connection stands", exists(a.in("connected")))
	open := egressLog(t, m, a.ID).Open
	expect.True(t, open.Count == 1 && open.Unknown == "" && open.Connections[0].To() == "ssh.example.test:22",
		"open: %+v", open)
	must.Get(m.Sleep(operator(t.Context()), a.ID))(t)
	l := egressLog(t, m, a.ID)
	e := told(l, chat.EgressAllowed, "ssh.example.test:22")
	expect.True(t, e.Count == 1 && e.Received == int64(len("SSH-2.0-test\r\n")), "asleep: %+v", l)
	expect.True(t, l.Open.Count == 0 && l.Open.Unknown == "", "asleep, open: %+v", l.Open)
}

// TestOwnNetworkExplain: of a listed name it is said where it leads nowhere now.
func TestOwnNetworkExplain(t *testing.T) {
	newInternet(t)
	m := open(t, named(t, usual...))
	a := inmateOf(t, m, "explain", "named")
	must.Get(m.Wake(operator(t.Context()), a.ID))(t)
	const now = "it is listed; nothing is reached now: "
	until(t, "chatd-egress has started and answers", func() bool {
		e := must.Get(m.Explain(operator(t.Context()), a.ID, chat.Question{Host: "api.example.test",
			Port: 7000}))(t)
		return e.Why == "it is listed"
	})
	for host, want := range map[string]string{
		"api.example.test":   "it is listed",
		"gone.example.test":  now + "cannot resolve gone.example.test",
		"inner.example.test": now + "inner.example.test resolves to private",
	} {
		e := must.Get(m.Explain(operator(t.Context()), a.ID, chat.Question{Host: host, Port: 7000}))(t)
		if e.Verdict != "allow" || !strings.HasPrefix(e.Why, want) ||
			host == "api.example.test" && e.Why != want {
			t.Errorf("%s: %+v, want %q", host, e, want)
		}
	}
	must.Get(m.Sleep(operator(t.Context()), a.ID))(t)
	e := must.Get(m.Explain(operator(t.Context()), a.ID, chat.Question{Host: "gone.example.test",
		Port: 7000}))(t)
	expect.True(t, e.Why == "it is listed", "asleep: %+v", e)
}

// TestOwnNetworkLogFlood: a chat that is refused without end is counted right, keeps a bounded
// number of entries, and has a bounded number of lines in the audit log. egress.TestTallyBound
// has the bound on the kinds of a second: whether a machine comes so far depends on its speed.
func TestOwnNetworkLogFlood(t *testing.T) {
	newInternet(t)
	opt := named(t, usual...)
	m := open(t, opt)
	a := inmateOf(t, m, "flood", "named")
	began := time.Now()
	const flood = 1000 // connections to as many ports; some kernels reset one before it stands
	r := must.Get(m.Run(operator(t.Context()), a.ID, chat.RunSpec{
		Timeout: chat.Duration(20 * time.Minute), // an emulated machine is slow
		Argv: []string{"bash", "-c", fmt.Sprintf("for i in $(seq %d); do "+
			"true 3<>/dev/tcp/203.0.113.9/$((i+10000)); done 2>/dev/null; echo done", flood)}}))(t)
	must.True(t, r.Stdout == "done\n", "%+v", r)
	until(t, "all are counted", func() bool {
		return egressLog(t, m, a.ID).Totals.Refused >= flood
	})
	must.Get(m.Sleep(operator(t.Context()), a.ID))(t)
	l := egressLog(t, m, a.ID)
	expect.True(t, l.Totals == (chat.EgressTotals{Refused: flood}) && len(l.Entries) <= 200,
		"%d entries, %+v", len(l.Entries), l.Totals)
	m.restart(t, opt) // audits the rest
	if l := egressLog(t, m, a.ID); len(l.Entries) > 0 || l.Totals != (chat.EgressTotals{}) {
		t.Errorf("the next chatd-root has %+v", l.Totals)
	}
	more := int(time.Since(began) / (5 * time.Minute))
	lines := auditLines(t, opt, `"egress"`, `"denied"`, string(a.ID))
	expect.True(t, len(lines) >= 21 && len(lines) <= 21+more,
		"%d lines, want 21 to %d", len(lines), 21+more)
	last := lines[len(lines)-1]
	expect.True(t, strings.Contains(last, "beyond the chat's lines: 20"), "%v", last)
}
