package chat

import (
	"strings"
	"testing"
)

func TestCheckHost(t *testing.T) {
	long := strings.Repeat("a", 63)
	for in, want := range map[string]string{
		"example.com": "example.com", "API.Example.COM": "api.example.com",
		"example.com.": "example.com",
		"localhost":    "localhost", "db": "db", "_sip.example.com": "_sip.example.com",
		"a-b.c":                 "a-b.c",
		"xn--bcher-kva.example": "xn--bcher-kva.example", "1and1.com": "1and1.com",
		"7.eleven": "7.eleven",
		"0xyz":     "0xyz", "a.0xg": "a.0xg", long + ".com": long + ".com",
	} {
		if got, err := CheckHost(in); err != nil || got != want {
			t.Errorf("CheckHost(%q) = %q, %v, want %q", in, got, err, want)
		}
	}
	for in, why := range map[string]string{
		"": "1 to 253", ".": "1 to 253", "a..b": "label", ".a": "label", "a.b..": "label",
		"-a.com": "hyphen",
		"a-.com": "hyphen", long + "a.com": "63", strings.Repeat("a.", 126) + "bc": "253",
		"bücher.example": "xn--", "\u212aelvin.com": "xn--", "a b": "letters", "a\n.com": "letters",
		"*.com": "letters", "*": "letters", "a/b": "letters", "a:b": "letters", "a%b": "letters",
		"\xff":      "xn--",
		"127.0.0.1": "address", "127.0.0.1.": "address", "2130706433": "address",
		"0177.0.0.1": "address",
		"0x7f000001": "address", "0X7F.1": "address", "1.2.3": "address", "a.1": "address",
		"a.0x1":     "address",
		"256.1.1.1": "address",
	} {
		if got, err := CheckHost(in); err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("CheckHost(%q) = %q, %v, want an error with %q", in, got, err, why)
		}
	}
}

// FuzzCheckHost: a canonical name is its own canonical name, and no more than letters that a packet
// of DNS and a line of a log may have.
func FuzzCheckHost(f *testing.F) {
	f.Add("API.Example.COM.")
	f.Add("\u212aelvin.com")
	f.Fuzz(func(t *testing.T, s string) {
		name, err := CheckHost(s)
		if err != nil {
			return
		}
		again, err := CheckHost(name)
		if err != nil || again != name || !strings.EqualFold(name, strings.TrimSuffix(s, ".")) {
			t.Errorf("%q is %q, which is %q, %v", s, name, again, err)
		}
		if strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789-_.") != "" || len(name) > 253 {
			t.Errorf("%q is %q", s, name)
		}
	})
}
