package secret

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

const text = "sk-0123456789abcdef"

func value(t testing.TB, s string) Value {
	t.Helper()
	v := must.Get(ParseValue([]byte(s)))(t)
	return v
}

// TestValueIsHidden: nothing that prints a value, or what holds one, shows it.
func TestValueIsHidden(t *testing.T) {
	v := value(t, text+"\n")
	must.True(t, v.Reveal() == text && !v.IsZero(), "it is not read")
	holder := struct {
		V Value
		P *Value
		M map[string]Value
		h Value
	}{v, &v, map[string]Value{"a": v}, v}
	var out bytes.Buffer
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d", "%T", "%p"} {
		fmt.Fprintf(&out, verb+verb, v, holder)
	}
	for _, h := range []slog.Handler{
		slog.NewTextHandler(&out, nil), slog.NewJSONHandler(&out, nil),
	} {
		slog.New(h).Info("it", "v", v, "holder", holder, "pointer", &v)
	}
	b := must.Get(json.Marshal(holder))(t)
	out.Write(b)
	fmt.Fprint(&out, errors.Join(fmt.Errorf("%v %w", v, chat.ErrInvalid)))
	for _, leak := range []string{text, fmt.Sprintf("%x", text), "0123456789"} {
		expect.True(t, !strings.Contains(out.String(), leak), "it shows: %s", out.String())
	}
}

func TestParseValue(t *testing.T) {
	for _, s := range []string{text, text + "\n", text + "\r\n", strings.Repeat("x", MaxValue)} {
		value(t, s)
	}
	for _, s := range []string{
		"", "\n", "short", text + "\n\n", text + "\nmore", "two words of it", text + "\x00",
		"\xef\xbb\xbf" + text, "gehe\u00efmnis-x", strings.Repeat("x", MaxValue+1), text + "\t",
	} {
		_, err := ParseValue([]byte(s))
		if !errors.Is(err, chat.ErrInvalid) || len(s) > 3 && strings.Contains(err.Error(), s[:4]) {
			t.Errorf("%q: %v", s, err)
		}
	}
}

// TestPlaceholder: each chat and each secret has its own, and it is no part of the chat's id.
func TestPlaceholder(t *testing.T) {
	k := NewKeys([]byte("install key"))
	const a, b chat.ID = "aaaaaaaaaaaaaaaa", "bbbbbbbbbbbbbbbb"
	seen := map[string]bool{}
	for _, p := range []string{k.Placeholder(a, "x"), k.Placeholder(b, "x"), k.Placeholder(a, "y"),
		NewKeys([]byte("another")).Placeholder(a, "x")} {
		if len(p) != len(Prefix)+32 || !strings.HasPrefix(p, Prefix) || seen[p] {
			t.Errorf("%q", p)
		}
		seen[p] = true
	}
	if again := NewKeys([]byte("install key")).Placeholder(a, "x"); !seen[again] {
		t.Errorf("it changes: %q", again)
	}
}

func TestHeader(t *testing.T) {
	for _, x := range []struct{ form, name, with string }{
		{"Authorization: Bearer $", "Authorization", "Bearer V"},
		{"authorization: Bearer $", "Authorization", "Bearer V"},
		{"x-api-key: $", "X-Api-Key", "V"},
		{"x-api-key:$", "X-Api-Key", "V"},
		{"Authorization: Token token=\"$\", v=1", "Authorization", "Token token=\"V\", v=1"},
		{"Authorization: Basic user:$", "Authorization", "Basic dXNlcjpW"},
		{"Authorization: Basic $:", "Authorization", "Basic Vjo="},
	} {
		h, err := ParseHeader(x.form)
		expect.True(t, err == nil && h.Name() == x.name && h.With("V") == x.with && h.Has(x.with, "V"),
			"%s: %+v, %v", x.form, h, err)
		again, err := ParseHeader(h.String())
		expect.True(t, err == nil && again == h, "%s: again %v, %v", h, again, err)
		for _, other := range []string{"", "V", x.with + " ", " " + x.with, x.with + ",", "W",
			strings.ToLower(x.with), h.With("W"), h.With("")} {
			if other != x.with && h.Has(other, "V") {
				t.Errorf("%s has %q", h, other)
			}
		}
	}
	for _, s := range []string{
		"", "$", "Authorization", "Authorization: Bearer", "Authorization: $ $", ": $", "a b: $",
		"Host: $", "content-length: $", "Transfer-Encoding: $", "Connection: $", "Cookie: a=$",
		"Upgrade: $", "proxy-authorization: $", "Sec-WebSocket-Protocol: $", "X: $\r\nY: z",
		"X: \x01$", "X: $ ", "Authorization: Basic $", "X: \u00e4$",
		"X: " + strings.Repeat("y", 600) + "$",
	} {
		if h, err := ParseHeader(s); !errors.Is(err, chat.ErrInvalid) {
			t.Errorf("%q: %v, %v", s, h, err)
		}
	}
}

func TestTraces(t *testing.T) {
	v := value(t, text)
	h := must.Get(ParseHeader("Authorization: Basic user:$"))(t)
	traces := h.Traces(v)
	expect.True(t, len(traces) == 2 && traces[0] == text && "Basic "+traces[1] == h.With(text), "%q", traces)
}

func allow(t testing.TB, texts ...string) (list []chat.Allow) {
	t.Helper()
	for _, s := range texts {
		a := must.Get(chat.ParseAllow(s))(t)
		list = append(list, a)
	}
	return list
}

func spec(t testing.TB, hosts ...string) Spec {
	t.Helper()
	h := must.Get(ParseHeader("x-api-key: $"))(t)
	return Spec{File: "/etc/s", Hosts: allow(t, hosts...), Header: h, Env: "KEY"}
}

func TestSpec(t *testing.T) {
	good := spec(t, "api.example.com:443", "*.example.org:8443")
	if key, err := good.Validate(); err != nil {
		t.Errorf("%s: %v", key, err)
	}
	for host, want := range map[string]bool{
		"api.example.com": true, "x.api.example.com": false, "a.example.org": false,
	} {
		if good.IsFor(host, 443) != want {
			t.Errorf("%s: %v", host, !want)
		}
	}
	expect.True(t, good.IsFor("a.b.example.org", 8443) && !good.IsFor("example.org", 8443), "a star")
	for key, change := range map[string]func(*Spec){
		"file":     func(s *Spec) { s.File = "etc/s" },
		"hosts":    func(s *Spec) { s.Hosts = nil },
		"hosts[0]": func(s *Spec) { s.Hosts = allow(t, "192.0.2.1:443") },
		"hosts[1]": func(s *Spec) {
			s.Hosts = allow(t, "a.example.com:443", "udp:b.example.com:443")
		},
		"hosts[2]": func(s *Spec) {
			s.Hosts = allow(t, "a.example.com:443", "b.example.com:443", "c.example.com:1-2")
		},
		"header": func(s *Spec) { s.Header = Header{} },
		"env":    func(s *Spec) { s.Env = "LD_PRELOAD" },
	} {
		s := good
		change(&s)
		if got, err := s.Validate(); got != key || !errors.Is(err, chat.ErrInvalid) {
			t.Errorf("%s: %s, %v", key, got, err)
		}
	}
	good.Env = ""
	if key, err := good.Validate(); key != "env" || err == nil {
		t.Errorf("no variable: %s, %v", key, err)
	}
}

func TestCheck(t *testing.T) {
	specs := map[string]Spec{
		"a": spec(t, "api.example.com:443"), "same": spec(t, "api.example.com:443"),
		"star": spec(t, "*.example.com:443"), "port": spec(t, "api.example.com:8443"),
	}
	star := specs["star"]
	star.Env = "OTHER"
	specs["star"] = star
	p := chat.Profile{Egress: allow(t, "api.example.com:443", "udp:api.example.com:8443")}
	for _, x := range []struct {
		names []string
		env   map[string]string
		want  string
	}{
		{nil, nil, ""},
		{[]string{"a", "star"}, map[string]string{"X": "y"}, ""},
		{[]string{"none"}, nil, `secrets[0] "none": want a key`},
		{[]string{"a", "same"}, nil, `secrets[1] "same": its variable KEY is that of a`},
		{[]string{"star", "a"}, map[string]string{"KEY": ""},
			`secrets[1] "a": its variable KEY is set`},
		{[]string{"port"}, nil, "egress opens none"},
	} {
		p.Secrets, p.Env = x.names, x.env
		err := Check(p, specs)
		if x.want == "" && err != nil || x.want != "" && (!errors.Is(err, chat.ErrInvalid) ||
			!strings.Contains(err.Error(), x.want)) {
			t.Errorf("%v: %v, want %q", x.names, err, x.want)
		}
	}
	p.Secrets, p.Env, p.Egress = []string{"a"}, nil, allow(t, "*.example.com:1-65535")
	expect.NoError(t, Check(p, specs))
	p.Egress = allow(t, "*.api.example.com:443", "203.0.113.0/24:443")
	if err := Check(p, specs); err == nil {
		t.Error("names below it are not it")
	}
}

func FuzzParseHeader(f *testing.F) {
	f.Add("Authorization: Basic user:$", "placeholder")
	f.Add("x-api-key: $", "p")
	f.Fuzz(func(t *testing.T, form, placeholder string) {
		h, err := ParseHeader(form)
		if err != nil {
			return
		}
		if again, err := ParseHeader(h.String()); err != nil || again != h {
			t.Errorf("%q: %v, %v", form, again, err)
		}
		if !h.Has(h.With(placeholder), placeholder) || h.Has(h.With(placeholder+"x"), placeholder) {
			t.Errorf("%q", form)
		}
	})
}

// TestPack: values arrive, and a message that cannot be read shows none.
func TestPack(t *testing.T) {
	all := []Known{{"a", spec(t, "api.example.com:443"), value(t, text)},
		{"b", spec(t, "*.example.com:443"), Value{}}}
	b := must.Get(Pack(all))(t)
	got, err := Unpack(b)
	if err != nil || len(got) != 2 || got[0].Value.Reveal() != text || !got[1].Value.IsZero() ||
		got[0].Header != all[0].Header ||
		!got[0].IsFor("api.example.com", 443) || got[1].Name != "b" {
		t.Errorf("%+v, %v", got, err)
	}
	for _, bad := range [][]byte{nil, b[:len(b)-1], append(b, b...),
		bytes.Replace(b, []byte(`"name"`), []byte(`"sk-0123456789abcdef"`), 1),
		bytes.Replace(b, []byte(text), []byte("sk-0123 456789abcdef"), 1)} {
		if got, err := Unpack(bad); err == nil || got != nil ||
			strings.Contains(err.Error(), "sk-0") {
			t.Errorf("%s: %v, %v", bad, got, err)
		}
	}
	if s := fmt.Sprintf("%v %+v %#v", all, all, all); strings.Contains(s, text) {
		t.Errorf("it shows: %s", s)
	}
}
