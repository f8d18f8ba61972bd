package chat

import (
	"errors"
	"testing"
)

func TestParseDestination(t *testing.T) {
	for in, want := range map[string]Destination{
		"api.Example.com.:443":    {"api.Example.com.", 443, false},
		"udp:192.0.2.1:53":        {"192.0.2.1", 53, true},
		"[2001:db8::1]:65535":     {"2001:db8::1", 65535, false},
		"udp:[::ffff:10.0.0.1]:1": {"::ffff:10.0.0.1", 1, true},
		"localhost:80":            {"localhost", 80, false},
	} {
		if got, err := ParseDestination(in); err != nil || got != want {
			t.Errorf("%s: %+v, %v", in, got, err)
		}
	}
	for in, want := range map[string]string{
		"api.Example.com.:443": "api.example.com:443", "udp:192.0.2.1:53": "udp:192.0.2.1:53",
		"[2001:DB8::0:1]:443": "[2001:db8::1]:443", "udp:[::ffff:10.0.0.1]:1": "udp:10.0.0.1:1",
	} {
		if got, err := ParseDestination(in); err != nil || got.String() != want {
			t.Errorf("%s: %s, %v", in, got, err)
		}
	}
	for _, bad := range []string{
		"", ":", "a.example", "a.example:", "a.example:0", "a.example:65536", "a.example:1-2",
		":443",
		"2001:db8::1", "2001:db8::1:443", "[192.0.2.1]:1", "[a.example]:1", "[2001:db8::1:1",
		"2001:db8::1]:1",
		"[fe80::1%eth0]:1", "*.example.com:443", "10.0.0.0/8:443", "bücher.example:1", "1.2.3:80",
		"a b:1",
		"https://a.example:443", "tcp:a.example:443",
	} {
		if got, err := ParseDestination(bad); !errors.Is(err, ErrInvalid) {
			t.Errorf("%q: %+v, %v, want ErrInvalid", bad, got, err)
		}
	}
}

func FuzzParseDestination(f *testing.F) {
	f.Add("udp:[2001:db8::1]:443")
	f.Add("API.example.com.:1")
	f.Fuzz(func(t *testing.T, s string) {
		d, err := ParseDestination(s)
		if err != nil {
			return
		}
		again, err := ParseDestination(d.String())
		if err != nil || again.String() != d.String() || (d.Name() == "") != d.Addr().IsValid() {
			t.Errorf("%q is %+v, which is %+v, %v", s, d, again, err)
		}
	})
}

func TestQuestionValidate(t *testing.T) {
	for _, x := range []struct {
		name string
		q    Question
		ok   bool
	}{
		{"a path", Question{Path: "a", Op: "read"}, true},
		{"a command", Question{Command: "ls"}, true},
		{"a name", Question{Host: "a.example", Port: 443}, true},
		{"an address", Question{Host: "2001:db8::1", Port: 53, UDP: true}, true},
		{"nothing", Question{}, false}, {"a path without op", Question{Path: "a"}, false},
		{"path and command", Question{Path: "a", Op: "read", Command: "ls"}, false},
		{"path and host", Question{Path: "a", Op: "read", Host: "a.example", Port: 443}, false},
		{"command and host", Question{Command: "ls", Host: "a.example", Port: 443}, false},
		{"a host with op", Question{Host: "a.example", Port: 443, Op: "read"}, false},
		{"a command with op", Question{Command: "ls", Op: "read"}, false},
		{"a command with a port", Question{Command: "ls", Port: 443}, false},
		{"a path with udp", Question{Path: "a", Op: "read", UDP: true}, false},
		{"a port alone", Question{Port: 443}, false},
		{"a host without port", Question{Host: "a.example"}, false},
		{"a pattern", Question{Host: "*.example.com", Port: 443}, false},
		{"a host with a port inside", Question{Host: "a.example:1", Port: 443}, false},
		{"brackets", Question{Host: "[::1]", Port: 443}, false},
		{"a zone", Question{Host: "fe80::1%eth0", Port: 443}, false},
	} {
		err := x.q.Validate()
		if x.ok != (err == nil) || !x.ok && !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: %v", x.name, err)
		}
	}
}
