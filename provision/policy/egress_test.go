package policy

import (
	"context"
	"strings"
	"testing"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/filewire"
	"github.com/chatd/chatd/internal/sys"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

func profileTo(t *testing.T, network chat.Network, egress ...string) chat.Profile {
	t.Helper()
	p := chat.Profile{Name: "web", Network: network}
	for _, s := range egress {
		a, err := chat.ParseAllow(s)
		must.Do(t, err)
		p.Egress = append(p.Egress, a)
	}
	return p
}

// TestExplainEgress: the verdict, the entry that decides with its place, and why.
func TestExplainEgress(t *testing.T) {
	own := profileTo(t, chat.NetworkOwn, "api.example.com:443", "*.example.com:443",
		"udp:time.example.com:123", "0.0.0.0/0:8443", "10.0.0.0/8:8080", "169.254.0.0/16:80",
		"169.254.169.254:8000", "127.0.0.1:5432")
	none := profileTo(t, chat.NetworkNone)
	for _, x := range []struct {
		p        chat.Profile
		to       string
		entry    string // empty where none decides
		verdict  string
		why, key string
	}{
		{own, "API.example.com.:443", "api.example.com:443", "allow", "it is listed", "egress"},
		{own, "b.example.com:443", "*.example.com:443", "allow", "it is listed", "egress"},
		{own, "udp:time.example.com:123", "udp:time.example.com:123", "allow", "listed", "egress"},
		{own, "time.example.com:123", "", "deny", "other ports, or another protocol", ""},
		{own, "api.example.com:80", "", "deny", "other ports", ""},
		{own, "example.com:443", "", "deny", "it is not listed", ""},
		{own, "api.example.com.evil:443", "", "deny", "it is not listed", ""},
		{own, "8.8.8.8:8443", "0.0.0.0/0:8443", "allow", "it is listed", "egress"},
		{own, "10.1.2.3:8443", "", "deny", "wide entry", ""},
		{own, "10.1.2.3:8080", "10.0.0.0/8:8080", "allow", "it is listed", "egress"},
		{own, "[::ffff:10.1.2.3]:8080", "10.0.0.0/8:8080", "allow", "it is listed", "egress"},
		{own, "169.254.169.254:80", "", "deny", "metadata service", ""},
		{own, "168.63.129.16:8443", "", "deny", "metadata service", ""},
		{own, "169.254.169.254:8000", "169.254.169.254:8000", "allow", "it is listed", "egress"},
		{own, "[2606:2800::1]:8443", "", "deny", "it is not listed", ""},
		{own, "localhost:80", "", "allow", "only its own servers", ""},
		{own, "127.0.0.1:5432", "", "allow", "only its own servers", ""},
		{own, "[::1]:80", "", "allow", "only its own servers", ""},
		{own, "udp:localhost:80", "", "deny", "not listed", ""},
		{none, "api.example.com:443", "", "deny", "network none", ""},
		{none, "192.0.2.1:443", "", "deny", "network none", ""},
		{none, "a.localhost:80", "", "allow", "only its own servers", ""},
	} {
		to, err := chat.ParseDestination(x.to)
		must.Do(t, err)
		e := explainEgress(x.p, to)
		expect.True(t, e.Verdict == x.verdict && e.Rule == x.entry && strings.Contains(e.Why, x.why),
			"%s, network %s: %+v", x.to, x.p.Network, e)
		place := map[bool]string{true: x.key + " of profile web"}[x.key != ""]
		expect.True(t, e.Place == place && e.Layer == "egress" && e.Name == to.String() && e.Paths != nil,
			"%s, network %s: %+v, want the place %q", x.to, x.p.Network, e, place)
	}
}

// TestExplainAsksNobodyAboutEgress: no rule, no link and no session is asked about a destination,
// and file rules that keep silent do not hide an entry.
func TestExplainAsksNobodyAboutEgress(t *testing.T) {
	w := newWorld(t, "access: {deny: [secret], messages: vague}")
	p := w.opt.Profiles[w.chat.Profile]
	p.Egress = profileTo(t, "", "api.example.com:443").Egress
	w.opt.Profiles[w.chat.Profile] = p
	in := Inside{
		Init: func() *sys.ProcessHandle { t.Error("the session was asked"); return nil },
		Resolve: func([]string) (map[string]filewire.Link, error) {
			t.Error("links were asked")
			return nil, nil
		},
		Closed: func() (masked, leftOut []string) { t.Error("masks were asked"); return nil, nil },
	}
	q := chat.Question{Host: "api.example.com", Port: 443}
	e, err := w.Explain(context.Background(), w.chat, q, in)
	expect.True(t, err == nil && e.Verdict == "allow" && e.Rule == "api.example.com:443", "%+v, %v", e, err)
}
