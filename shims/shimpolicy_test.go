package shims

import (
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/chatd/chatd/chat"
)

// TestShimPolicy: what chatd writes the shims read, and nothing else.
func TestShimPolicy(t *testing.T) {
	listed, err := chat.ParseAllow("203.0.113.0/24:443")
	if err != nil {
		t.Fatal(err)
	}
	p := ShimPolicy{Home: "/h", Agent: "a", Guard: chat.DefaultGuard(), Network: chat.NetworkOwn, Egress: []chat.Allow{listed}, Rules: "{}"}
	p.Guard.CustomAllowPatterns = []chat.Pattern{{Text: "a|b"}}
	text, err := p.JSON()
	if err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(t.TempDir(), "policy.json")
	if got, err := ReadShimPolicy(name); err != nil || got.Home != "" {
		t.Errorf("no policy: %+v, %v", got, err)
	}
	for content, ok := range map[string]bool{string(text): true, "{}": true, "": false, "{\"x\":1}": false, "[]": false} {
		if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := ReadShimPolicy(name)
		if (err == nil) != ok || ok && content == string(text) && (got.Guard.CustomAllowPatterns[0].Text != "a|b" || got.Egress[0] != p.Egress[0] || got.Home != "/h") {
			t.Errorf("%s: %+v, %v", content, got, err)
		}
	}
}

func TestReadShimDenial(t *testing.T) {
	for line, ok := range map[string]bool{
		`{"program":"rm","argv":"rm x","rule":"y"}`: true, `{"program":"rm","rule":"y"}`: true, "": false, "x": false, `{"program":"rm"}`: false,
		`{"program":"rm","rule":"y","uid":0}`: false, `{"program":"` + strings.Repeat("x", MaxShimDenial) + `","rule":"y"}`: false,
	} {
		if d, err := readShimDenial([]byte(line)); (err == nil) != ok || ok && d.Rule != "y" {
			t.Errorf("%.60s: %+v, %v", line, d, err)
		}
	}
}

// TestReadShimDenials: lines are whole however the reads divide them, one that does not end is cut,
// and nothing is read on once no more may be heard.
func TestReadShimDenials(t *testing.T) {
	const good = `{"program":"rm","argv":"rm x","rule":"y"}` + "\n"
	long := strings.Repeat("x", MaxShimDenial+10) + "\n"
	read := func(r io.Reader, max int) (said []string) {
		may := func() bool { max--; return max >= 0 }
		ReadShimDenials(r, may, func(line []byte, d ShimDenial, err error) {
			if (err == nil) != (d.Program == "rm") || len(line) > MaxShimDenial {
				t.Errorf("%.60s: %+v, %v", line, d, err)
			}
			said = append(said, d.Program)
		})
		return said
	}
	want := []string{"rm", "", "rm", "", "", "rm"}
	for name, r := range map[string]func(io.Reader) io.Reader{
		"in one piece": func(r io.Reader) io.Reader { return r },
		"byte by byte": iotest.OneByteReader, "by halves": iotest.HalfReader,
	} {
		got := read(r(strings.NewReader(good+"\n"+good+long+good)), 99)
		if !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	if got := read(strings.NewReader(good+good+good), 2); len(got) != 2 {
		t.Errorf("%d lines, and two may be heard", len(got))
	}
}

func TestGuardedNames(t *testing.T) {
	for _, name := range GuardedNames() {
		if slices.Contains(ShimNames(), name) {
			t.Errorf("%s is among those that never run", name)
		}
	}
}
