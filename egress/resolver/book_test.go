package resolver

import (
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// bookAt opens a book in a file, as an earlier chatd-egress left it.
func bookAt(t testing.TB, path string, flags int) (*Book, error) {
	t.Helper()
	f := must.Get(os.OpenFile(path, os.O_RDWR|os.O_CREATE|flags, 0o600))(t)
	if _, err := f.Seek(0, io.SeekEnd); err != nil { // as the earlier one left it
		t.Fatal(err)
	}
	return OpenBook(f)
}

func newBook(t testing.TB) *Book {
	t.Helper()
	return must.Get(bookAt(t, filepath.Join(t.TempDir(), "names"), 0))(t)
}

func wantAddrs(t testing.TB, b *Book, host, want4, want6 string) {
	t.Helper()
	v4, v6, err := b.Addrs(host)
	must.True(t, err == nil && v4.String() == want4 && v6.String() == want6,
		"%s has %v, %v, %v, want %s, %s", host, v4, v6, err, want4, want6)
	mapped := netip.AddrFrom16(v4.As16())
	for _, a := range []netip.Addr{v4, v6, mapped} {
		if got, ok := b.Host(a); !ok || got != host || !MadeUp(a) {
			t.Errorf("%s is of %q, %v, made up: %v, want %s", a, got, ok, MadeUp(a), host)
		}
	}
}

func TestBookKept(t *testing.T) {
	for name, flags := range map[string]int{"plain": 0, "append": os.O_APPEND} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "names")
			for round := range 3 {
				b := must.Get(bookAt(t, path, flags))(t)
				if round == 1 { // in another order
					wantAddrs(t, b, "b.example.com", "198.18.1.1", "fd63:6861:7464::101")
				}
				wantAddrs(t, b, "a.example.com", "198.18.1.0", "fd63:6861:7464::100")
				wantAddrs(t, b, "b.example.com", "198.18.1.1", "fd63:6861:7464::101")
				must.Do(t, b.Close())
			}
			text, err := os.ReadFile(path)
			if want := "a.example.com\nb.example.com\n"; err != nil || string(text) != want {
				t.Errorf("the file has %q, %v, want %q", text, err, want)
			}
		})
	}
}

// A write that a crash ended is not a name: nobody has its address.
func TestBookTorn(t *testing.T) {
	for _, flags := range []int{0, os.O_APPEND} {
		path := filepath.Join(t.TempDir(), "names")
		torn := "a.example.com\nb.with.a.long.name.example.co"
		must.Do(t, os.WriteFile(path, []byte(torn), 0o600))
		for range 2 {
			b := must.Get(bookAt(t, path, flags))(t)
			wantAddrs(t, b, "c.example.com", "198.18.1.1", "fd63:6861:7464::101")
			must.Do(t, b.Close())
		}
		text, err := os.ReadFile(path)
		want := "a.example.com\nc.example.com\n"
		expect.True(t, err == nil && string(text) == want, "the file has %q, %v, want %q", text, err, want)
	}
}

func TestBookDamaged(t *testing.T) {
	var many strings.Builder
	for i := range maxNames + 1 {
		fmt.Fprintf(&many, "n%d.example.com\n", i)
	}
	for text, want := range map[string]string{
		"a.example.com\nb c\n":               "line 2",
		"a.example.com\n\n":                  "line 2",
		"a.example.com\nB.example.com\n":     "line 2: \"B.example.com\" is not in canonical form",
		"a.example.com\na.example.com\n":     "line 2: \"a.example.com\" is there twice",
		"x.example.com.\n":                   "line 1",
		"192.0.2.1\n":                        "line 1",
		"a.com\nb.com\n\x00\x00\x00\x00\n":   "line 3",
		strings.Repeat("a", 1<<20) + "\n":    "",
		many.String():                        fmt.Sprintf("line %d: the chat", maxNames+1),
		"a.com\n" + strings.Repeat("b", 300): "",
	} {
		path := filepath.Join(t.TempDir(), "names")
		must.Do(t, os.WriteFile(path, []byte(text), 0o600))
		b, err := bookAt(t, path, 0)
		switch {
		case want == "" && err != nil:
			t.Errorf("%.60q: %v, want the unfinished line cut", text, err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("%.60q: %v, want an error of %s", text, err, want)
		}
		if b != nil {
			_ = b.Close()
		}
	}
}

func TestBookFull(t *testing.T) {
	b := newBook(t)
	for i := range maxNames {
		if _, _, err := b.Addrs(fmt.Sprintf("n%d.example.com", i)); err != nil {
			t.Fatal(i, err)
		}
	}
	expect.Is(t, expect.Err(b.Addrs("one.more.example.com")), ErrFull, "name %d", maxNames+1)
	wantAddrs(t, b, "n0.example.com", "198.18.1.0", "fd63:6861:7464::100")
	wantAddrs(t, b, "n4095.example.com", "198.18.16.255", "fd63:6861:7464::10ff")
}

// A name whose line could not be written has no address, and does not take that of the next.
func TestBookWriteFails(t *testing.T) {
	path := filepath.Join(t.TempDir(), "names")
	f := must.Get(os.Create(path))(t)
	b := must.Get(OpenBook(f))(t)
	must.Do(t, f.Close())
	expect.True(t, expect.Err(b.Addrs("a.example.com")) != nil,
		"a name whose line was not written has an address")
	host, ok := b.Host(netip.MustParseAddr("198.18.1.0"))
	expect.True(t, !ok, "its address is of %s", host)
}

func TestBookOthers(t *testing.T) {
	b := newBook(t)
	wantAddrs(t, b, "a.example.com", "198.18.1.0", "fd63:6861:7464::100")
	bad := []string{"", "A.example.com", "a.example.com.", "a\nb.example.com", "10.0.0.1"}
	for _, host := range bad {
		expect.True(t, expect.Err(b.Addrs(host)) != nil, "%q has an address", host)
	}
	for _, a := range addrs("198.18.0.0", "198.18.0.255", "198.18.1.1", "198.19.1.0", "198.20.1.0",
		"fd63:6861:7464::1", "fd63:6861:7464::101", "fd63:6861:7464:1::100",
		"fd63:6861:7464::1:100", "fd63:6861:7465::100", "192.0.2.1",
		"fd63:6861:7464::100%lo", "::ffff:198.18.0.1") {
		host, ok := b.Host(a)
		expect.True(t, !ok, "%s is of %s", a, host)
	}
	_, ok := b.Host(netip.Addr{})
	expect.True(t, !ok && !MadeUp(netip.Addr{}), "no address is made up")
	for _, p := range []netip.Prefix{V4Names, V6Names} {
		expect.True(t, !chat.Public(p.Addr()), "%s is of the internet", p)
	}
}

func TestBookRace(t *testing.T) {
	b := must.Get(bookAt(t, filepath.Join(t.TempDir(), "names"), 0))(t)
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for i := range 50 {
				host := fmt.Sprintf("n%d.example.com", i)
				v4, v6, err := b.Addrs(host)
				of4, _ := b.Host(v4)
				of6, _ := b.Host(v6)
				expect.True(t, err == nil && of4 == host && of6 == host,
					"%s has %s of %q and %s of %q, %v", host, v4, of4, v6, of6, err)
			}
		})
	}
	all.Wait()
	expect.NoError(t, b.Close())
}

func FuzzBook(f *testing.F) {
	f.Add("", "a.example.com")
	f.Add("a.example.com\nb.example.com\n", "a.example.com")
	f.Add("a.example.com\nb.examp", "b.example.com")
	f.Add("a.example.com\r\n", "b.example.com")
	f.Add("\n", "b\n.example.com")
	f.Fuzz(func(t *testing.T, text, host string) {
		path := filepath.Join(t.TempDir(), "names")
		must.Do(t, os.WriteFile(path, []byte(text), 0o600))
		b, err := bookAt(t, path, 0)
		if err != nil {
			return
		}
		v4, v6, err := b.Addrs(host)
		names := b.names
		must.Do(t, b.Close())
		again, openErr := bookAt(t, path, 0)
		must.True(t, openErr == nil, "cannot open it again: %v", openErr)
		defer func() { _ = again.Close() }()
		must.True(t, strings.Join(again.names, "\n") == strings.Join(names, "\n"),
			"%q became %q", names, again.names)
		if err == nil {
			wantAddrs(t, again, host, v4.String(), v6.String())
		}
	})
}
