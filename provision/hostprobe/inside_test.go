package hostprobe

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/plan"
	"github.com/chatd/chatd/provision/layers"
	"github.com/chatd/chatd/provision/session"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// TestAwaitLayers: the results are read when they are whole, also those that a session wrote just
// before its end; a session that ends without them, or has none in time, is an error.
func TestAwaitLayers(t *testing.T) {
	whole := `[{"name":"view","state":"on"}]`
	for name, c := range map[string]struct {
		out, later string // what is there, and what is when alive was asked three times
		dies       bool   // then
		slow, dead bool
	}{
		"there":          {out: whole},
		"comes":          {out: whole[:9], later: whole},
		"comes and ends": {later: whole, dies: true},
		"half, and ends": {out: whole[:9], dies: true, dead: true},
		"ends":           {dies: true, dead: true},
		"half, for ever": {out: whole[:9], slow: true},
		"never":          {slow: true},
	} {
		t.Run(name, func(t *testing.T) {
			out, asked := c.out, 0
			alive := func() bool {
				if asked++; asked == 3 {
					out += strings.TrimPrefix(c.later, c.out)
				}
				return asked < 3 || !c.dies
			}
			timeout := time.Minute
			if c.slow {
				timeout = 20 * time.Millisecond
			}
			found, err := awaitLayers(readerAt(func() string { return out }), alive, timeout)
			if errors.Is(err, layers.ErrSlow) != c.slow || (err != nil) != (c.slow || c.dead) {
				t.Fatal(err)
			}
			if err == nil && (len(found) != 1 || found[0].Name != chat.LayerView) {
				t.Errorf("%+v", found)
			}
		})
	}
}

// readerAt reads the text that it returns.
type readerAt func() string

func (r readerAt) ReadAt(b []byte, at int64) (int, error) {
	return strings.NewReader(r()).ReadAt(b, at)
}

// TestProgram: what a session must not reach is held until the probe is over, and named to it.
func TestProgram(t *testing.T) {
	shim := filepath.Join(t.TempDir(), "shim")
	v := plan.View{Home: "/h", Network: chat.NetworkNone}
	p := New(Options{Starter: session.New(session.Options{Shim: shim}), Hidden: "/hidden"})
	expect.Is(t, expect.Err(p.program(v)), os.ErrNotExist, "without a shim")
	must.Do(t, os.WriteFile(shim, nil, 0o755))
	argv, release, err := p.program(v)
	must.Do(t, err)
	abstract := fmt.Sprintf("chatd-probe-%d", os.Getpid())
	for _, want := range [][2]string{
		{"--home", "/h"}, {"--hidden", "/hidden"},
		{"--hidden", "/etc/shadow"}, {"--abstract", abstract}, {"--pid", fmt.Sprint(os.Getpid())},
		{"--locked", "/usr"}, {"--locked", "/dev/null"}, {"--locked", plan.InsideShim},
	} {
		expect.True(t, pair(argv, want[0], want[1]), "%v is not in %q", want, argv)
	}
	reach := func() error {
		c, err := net.Dial("unix", "@"+abstract)
		if err == nil {
			err = c.Close()
		}
		return err
	}
	if err := reach(); err != nil {
		t.Errorf("there is nothing to reach: %v", err)
	}
	release()
	if err := reach(); err == nil {
		t.Error("the socket is there after the probe")
	}
	if _, release, err = p.program(v); err != nil {
		t.Fatalf("the next probe: %v", err)
	}
	release()
}

// pair reports whether an option with its value is among the arguments.
func pair(argv []string, option, value string) bool {
	for i := range len(argv) - 1 {
		if argv[i] == option && argv[i+1] == value {
			return true
		}
	}
	return false
}

// TestMakeDir: the directory is on the file system of a place that need not be there, and others
// may pass through it.
func TestMakeDir(t *testing.T) {
	parent := t.TempDir()
	for _, place := range []string{parent + "/homes", parent + "/a/b/homes"} {
		dir, err := MakeDir(place)
		must.True(t, err == nil && filepath.Dir(dir) == parent, "%s: %v", dir, err)
		if fi, err := os.Stat(dir); err != nil || fi.Mode().Perm() != 0o711 {
			t.Errorf("%v, %v", fi, err)
		}
	}
	if _, err := MakeDir("/proc/self/nothing/homes"); err == nil {
		t.Error("made below /proc")
	}
}
