package roottest

import (
	"errors"
	"os"
	"strings"
	"testing"

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
	p := opt.Profiles["named"]
	p.EgressMayAdd = parsedAllows(t, "*.example.test:22-7000", "10.213.0.0/24:8000-9000")
	opt.Profiles["named"] = p
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
		must.Do(t, m.Close())
		again := must.Get(openManager(t.Context(), opt))(t)
		*m = *again
		outcomes(t, "added", a.try(t, "say", "ssh.example.test:22", "x"), "ok")
		outcomes(t, "taken away", a.try(t, "say", "api.example.test:7000", "x"), refused)
	})
	t.Run("what the profile does not admit", func(t *testing.T) {
		for _, text := range []string{"ssh.example.test:21", "example.org:443", "10.213.0.2:7000",
			"169.254.169.254:8000", "0.0.0.0/0:8000"} {
			err := tryPatch(t, m, a.ID, `{"egress_add": ["`+text+`"]}`)
			expect.Is(t, err, chat.ErrDenied, "%s", text)
		}
		log := must.Get(os.ReadFile(opt.State + "/audit.jsonl"))(t)
		if n := strings.Count(string(log), `"rule":"egress_may_add"`); n != 5 {
			t.Errorf("%d refusals are audited, want 5", n)
		}
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
		a := must.Get(chat.ParseAllow(text))(t)
		all = append(all, a)
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
