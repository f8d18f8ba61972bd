package files

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/filewire"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
	"golang.org/x/sys/unix"
)

const (
	pathOutside = "access denied: path is outside the workspace"
	linkOutside = "access denied: symlink resolves outside workspace"
)

// TestRestrict is PicoClaw's restrict_to_workspace for every tool: traversal and
// absolute paths, links out directly, by a chain, by a directory, and below a
// directory that is not there.
func TestRestrict(t *testing.T) {
	w := newWorld(t)
	mkdir(t, w.home+"/sub")
	link(t, w.out+"/secret", w.home+"/abs")
	link(t, "../outside/secret", w.home+"/rel")
	link(t, "abs", w.home+"/chain")
	link(t, w.out, w.home+"/dir")
	link(t, "../../outside", w.home+"/sub/dir")
	link(t, w.out+"/none", w.home+"/dangling")
	link(t, "/proc/self/root"+w.out, w.home+"/magic")
	link(t, "/proc/self/cwd", w.home+"/cwd")
	for p, message := range map[string]string{
		"../outside/secret": pathOutside, w.out + "/secret": pathOutside, "/etc/passwd": pathOutside,
		"sub/../../outside/secret": pathOutside, w.home + "/../outside/secret": pathOutside, w.home + "x": pathOutside,
		"..": pathOutside, "/": pathOutside, "/proc/self/root" + w.out + "/secret": pathOutside,
		"abs": linkOutside, "rel": linkOutside, "chain": linkOutside, "dir/secret": linkOutside, "sub/dir/secret": linkOutside,
		"dir": linkOutside, "dangling": linkOutside, "dir/new/file": linkOutside, "magic/secret": linkOutside, "cwd/x": linkOutside,
	} {
		for _, err := range w.each(p, "secret") {
			wantDenied(t, err, filewire.RuleWorkspace, message)
		}
	}
	expect.True(t, cat(t, w.out+"/secret") == secret && len(ls(t, w.out)) == 1 && len(ls(t, w.home)) == 8,
		"something was written: %v, %v", ls(t, w.out), ls(t, w.home))
}

// TestLinksInside: links that stay inside are followed and never replaced,
// relative and absolute, into the other root too, and also when what they name
// is not there yet.
func TestLinksInside(t *testing.T) {
	w := newWorld(t)
	mkdir(t, w.home+"/a/b")
	mkdir(t, w.tmp+"/work")
	links := map[string]string{"rel": "a/b/f", "abs": w.home + "/a/b/f", "up": "a/../a/b/../b/./f", "chain": "abs",
		"dir": "a/b", "absdir": w.home + "/a/b/", "round": "../home/a/b/f", "tmp": w.tmp + "/work", "reltmp": "../tmp/work"}
	for name, target := range links {
		link(t, target, w.home+"/"+name)
	}
	for p, real := range map[string]string{"rel": "/a/b/f", "abs": "/a/b/f", "up": "/a/b/f", "chain": "/a/b/f", "dir/f": "/a/b/f",
		"absdir/f": "/a/b/f", "round": "/a/b/f", "tmp/f": "", "reltmp/f": "", w.home + "/dir/f": "/a/b/f", w.tmp + "/work/f": ""} {
		file := w.home + real
		if real == "" {
			file = w.tmp + "/work/f"
		}
		os.Remove(file)
		want := p
		a, err := w.write(p, p)
		must.True(t, err == nil && a.Path == file && a.Created, "write %s: %+v, %v, want %s", p, a, err, file)
		_, err = w.append(p, "+")
		must.True(t, err == nil, "append %s: %v", p, err)
		_, err = w.edit(p, "+", ".")
		must.True(t, err == nil, "edit %s: %v", p, err)
		got, _, err := w.read(filewire.ReadFile{Path: p})
		must.True(t, err == nil && got == want+"." && cat(t, file) == want+".", "read %s: %q, %v", p, got, err)
	}
	for name, target := range links {
		expect.Equal(t, must.Get(os.Readlink(w.home+"/"+name))(t), target, "link %s became", name)
	}
	link(t, "a/../missing/../new", w.home+"/odd")
	expect.Is(t, expect.Err(w.write("odd", "x")), chat.ErrNotFound,
		"a link through what is not there and back")
	link(t, "loop2", w.home+"/loop1")
	link(t, "loop1", w.home+"/loop2")
	expect.Is(t, expect.Err(w.read(filewire.ReadFile{Path: "loop1"})), chat.ErrInvalid,
		"a loop of links")
}

// TestWorkspaceByLink: a workspace given by another name is the same workspace.
func TestWorkspaceByLink(t *testing.T) {
	w := newWorld(t)
	link(t, w.home, w.out+"/alias")
	alias := must.Get(Open(filewire.Options{Workspace: w.out + "/alias"}))(t)
	defer alias.Close()
	put1(t, w.home+"/f", "x")
	for _, p := range []string{"f", w.out + "/alias/f", w.home + "/f"} {
		got, a, err := (world{Tools: alias}).read(filewire.ReadFile{Path: p})
		expect.True(t, err == nil && got == "x" && a.Path == w.home+"/f", "%s: %q, %+v, %v", p, got, a, err)
	}
}

// TestOutside: allow_read_outside_workspace, the two lists of patterns and
// restrict_to_workspace: false. A grant to read grants no write, a name that only
// begins like a granted one is not granted, and it is the physical name that counts.
func TestOutside(t *testing.T) {
	reads, writes := "reads", "writes"
	for _, c := range []struct {
		name   string
		change func(*filewire.Options, string)
		path   string
		want   string // which of reads and writes work
	}{
		{"nothing", func(*filewire.Options, string) {}, "/secret", ""},
		{"unrestricted", func(o *filewire.Options, _ string) { o.Unrestricted = true }, "/secret", reads + writes},
		{"read outside", func(o *filewire.Options, _ string) { o.ReadOutside = true }, "/secret", reads},
		{"read pattern", func(o *filewire.Options, out string) { o.AllowRead = []string{"^" + out + "/secret$"} }, "/secret", reads},
		{"write pattern", func(o *filewire.Options, out string) { o.AllowWrite = []string{"^" + out + "/sec.*t$"} }, "/secret", writes},
		{"both", func(o *filewire.Options, out string) {
			o.AllowRead, o.AllowWrite = []string{"^" + out}, []string{"^" + out + "/secret"}
		}, "/secret", reads + writes},
		{"prefix is a directory", func(o *filewire.Options, out string) { o.AllowRead = []string{"^" + out + "/allow"} }, "/allow/x", reads},
		{"prefix with a slash", func(o *filewire.Options, out string) { o.AllowRead = []string{"^" + out + "/allow/"} }, "/allow/x", reads},
		{"prefix of a name", func(o *filewire.Options, out string) { o.AllowRead = []string{"^" + out + "/allow"} }, "/allowed-not", ""},
		{"prefix of a name, alternatives", func(o *filewire.Options, out string) { o.AllowRead = []string{"^" + out + "/(all|allow)"} }, "/allowed-not", ""},
		{"a longer alternative", func(o *filewire.Options, out string) { o.AllowRead = []string{"^" + out + "/(all|allow)"} }, "/allow/x", reads},
		{"link to a granted file", func(o *filewire.Options, out string) { o.AllowRead = []string{"^" + out + "/secret$"} }, "/../home/in", reads},
		{"granted link to another", func(o *filewire.Options, out string) { o.AllowRead = []string{"^" + out + "/link$"} }, "/link", ""},
		{"granted link, relative", func(o *filewire.Options, out string) { o.AllowRead = []string{"^" + out + "/rel$"} }, "/rel", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			var out string
			w := newWorld(t, func(o *filewire.Options) {
				out = path.Dir(o.Workspace) + "/outside"
				c.change(o, out)
			})
			mkdir(t, out+"/allow")
			for _, f := range []string{"/allow/x", "/allowed-not"} {
				put1(t, out+f, secret)
			}
			link(t, out+"/secret", out+"/link")
			link(t, "secret", out+"/rel")
			link(t, out+"/secret", w.home+"/in")
			got, _, readErr := w.read(filewire.ReadFile{Path: out + c.path})
			if can := strings.Contains(c.want, reads); can != (readErr == nil) || can && got != secret {
				t.Errorf("read: %q, %v", got, readErr)
			}
			_, writeErr := w.write(out+c.path, secret)
			_, appendErr := w.append(out+c.path, "")
			if can := strings.Contains(c.want, writes); can != (writeErr == nil) || can != (appendErr == nil) {
				t.Errorf("write: %v, append: %v", writeErr, appendErr)
			}
			_, err := w.edit(out+c.path, "secret", "secret")
			expect.True(t, (err == nil) == (c.want == reads+writes), "edit: %v", err)
		})
	}
}

// TestCheck: the folded and the physical name are checked, before anything is
// touched, a deny of either denies, and the answer names rule and path.
func TestCheck(t *testing.T) {
	var asked []string
	w := newWorld(t, func(o *filewire.Options) {
		o.Check = func(op filewire.Op, name string) *filewire.Denial {
			asked = append(asked, string(op)+" "+name)
			if strings.Contains(name, "denied") && op != filewire.Read || strings.Contains(name, "unread") && op == filewire.Read {
				return &filewire.Denial{Op: op, Path: name, Rule: "**/denied", Place: "policy.yaml:3", Layer: "access", Message: "no: " + path.Base(name)}
			}
			return nil
		}
	})
	mkdir(t, w.home+"/denied.d")
	put1(t, w.home+"/denied.d/f", "text")
	link(t, "denied.d", w.home+"/open")
	link(t, "free", w.home+"/denied-link")
	put1(t, w.home+"/free", "text")
	for p, checked := range map[string]string{"denied.d/f": "/denied.d/f", "open/f": "/denied.d/f", "denied-link": "/denied-link",
		"denied.d/new/deep/f": "/denied.d/new/deep/f", "open/new/deep/f": "/denied.d/new/deep/f", "denied.d/../denied": "/denied"} {
		for i, do := range []func() error{
			func() error { _, err := w.write(p, "x"); return err },
			func() error { _, err := w.append(p, "x"); return err },
			func() error { _, err := w.edit(p, "text", "x"); return err },
		} {
			err := do()
			wantDenied(t, err, "**/denied", "no: "+path.Base(checked))
			var d *filewire.Denial
			errors.As(err, &d)
			tool := []filewire.Tool{filewire.WriteFileTool, filewire.AppendFileTool, filewire.EditFileTool}[i]
			op := []filewire.Op{filewire.Write, filewire.Write, filewire.Edit}[i]
			if d.Path != w.home+checked || d.Place != "policy.yaml:3" || d.Tool != tool || d.Op != op {
				t.Errorf("%s: denied %+v", p, d)
			}
		}
	}
	expect.Equal(t, strings.Join(ls(t, w.home+"/denied.d"), " "), "f", "refused, and yet there")
	expect.True(t, cat(t, w.home+"/denied.d/f") == "text" && cat(t, w.home+"/free") == "text",
		"refused, and yet written")
	asked = nil
	must.Do(t, expect.Err(w.read(filewire.ReadFile{Path: "./x/../open/f"})))
	want := []string{"read " + w.home + "/open/f", "read " + w.home + "/denied.d/f"}
	expect.True(t, fmt.Sprint(asked) == fmt.Sprint(want), "asked %v, want %v", asked, want)
	mkdir(t, w.home+"/unread")
	expect.True(t, expect.Err(w.list(filewire.ListDir{Path: "unread"})) != nil,
		"list_dir asks for read, and got through")
	// Without a message of its own a denial says rule and place.
	d := &filewire.Denial{Op: filewire.Read, Path: "/x", Rule: "**/x", Place: "p.yaml:1"}
	expect.Equal(t, d.Error(), `access denied: read of "/x" by rule "**/x" (p.yaml:1)`, "")
}

// TestAgainstRoot compares the walk with os.Root's on random trees of relative
// links: what the one opens the other opens, and never anything outside.
func TestAgainstRoot(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	opened, escaped := 0, 0
	for range 60 {
		w := newWorld(t)
		root := must.Get(os.OpenRoot(w.home))(t)
		plant(t, rng, w.home)
		for range 60 {
			p := randomPath(rng)
			mine, _, err := w.read(filewire.ReadFile{Path: p})
			theirs, rootErr := root.ReadFile(filepath.Clean(p))
			must.True(t, (err == nil) == (rootErr == nil) && mine == string(theirs),
				"%s: got %q, %v; os.Root got %q, %v", p, mine, err, theirs, rootErr)
			if err == nil {
				opened++
			} else if errors.Is(err, chat.ErrDenied) {
				escaped++
			}
		}
		root.Close()
	}
	expect.True(t, opened >= 100 && escaped >= 100,
		"%d were opened and %d refused: too few to compare", opened, escaped)
}

var someNames = []string{"a", "b", "c", "d"}

func randomPath(rng *rand.Rand) string {
	parts := make([]string, 1+rng.IntN(4))
	for i := range parts {
		parts[i] = someNames[rng.IntN(len(someNames))]
		if rng.IntN(6) == 0 {
			parts[i] = ".."
		}
	}
	return strings.Join(parts, "/")
}

// plant grows directories, files and relative links, some to the outside.
func plant(t *testing.T, rng *rand.Rand, dir string) {
	t.Helper()
	dirs := []string{dir}
	for range 14 {
		at := dirs[rng.IntN(len(dirs))] + "/" + someNames[rng.IntN(len(someNames))]
		switch rng.IntN(4) {
		case 0:
			if os.Mkdir(at, 0o700) == nil {
				dirs = append(dirs, at)
			}
		case 1:
			if _, err := os.Lstat(at); err != nil {
				put1(t, at, at)
			}
		case 2:
			os.Symlink(randomPath(rng), at)
		case 3:
			os.Symlink("../../outside/secret", at)
		}
	}
}

// swap exchanges two names as fast as it can until end is called.
func swap(t *testing.T, a, b string) (swaps *atomic.Int64, end func()) {
	t.Helper()
	swaps = &atomic.Int64{}
	stop, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case <-stop:
				return
			default:
			}
			if err := unix.Renameat2(unix.AT_FDCWD, a, unix.AT_FDCWD, b, unix.RENAME_EXCHANGE); err != nil {
				t.Errorf("cannot swap: %v", err)
				return
			}
			swaps.Add(1)
		}
	}()
	end = sync.OnceFunc(func() { close(stop); <-ended })
	t.Cleanup(end)
	return swaps, end
}

func raceTime() time.Duration {
	if testing.Short() {
		return time.Second
	}
	return 4 * time.Second
}

// TestRace: while a directory and a link to the outside change places all the
// time, and a file and a link as well, no tool gets out. The check by names that
// PicoClaw makes does, in the same race.
func TestRace(t *testing.T) {
	for _, c := range []struct{ name, inside, trap, target, path string }{
		{"directory", "/d", "/l", "", "d/secret"},
		{"file", "/secret", "/l", "/secret", "secret"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			if c.target == "" {
				mkdir(t, w.home+c.inside)
			}
			put1(t, w.home+"/"+c.path, "inside\n")
			link(t, w.out+c.target, w.home+c.trap)
			put1(t, w.out+"/only-outside", "")
			swaps, stop := swap(t, w.home+c.inside, w.home+c.trap)
			naiveGetsOut(t, w, c.path)
			var n, done atomic.Int64
			end := time.Now().Add(raceTime())
			var all sync.WaitGroup
			for range 2 {
				all.Go(func() {
					for time.Now().Before(end) {
						done.Add(int64(w.raceOnce(t, c.path)))
						n.Add(5)
					}
				})
			}
			all.Wait()
			stop()
			t.Logf("%d calls, %d did their work, %d swaps", n.Load(), done.Load(), swaps.Load())
			expect.True(t, done.Load() != 0, "no call got through: nothing was tried")
			expect.True(t, cat(t, w.out+"/secret") == secret && len(ls(t, w.out)) == 2,
				"a tool got out: %v, %q", ls(t, w.out), cat(t, w.out+"/secret"))
			a, errA := os.Readlink(w.home + c.inside)
			b, errB := os.Readlink(w.home + c.trap)
			expect.True(t, (errA == nil) != (errB == nil) && a+b == w.out+c.target && len(ls(t, w.home)) == 2,
				"the link was replaced, or something left: %v", ls(t, w.home))
		})
	}
}

// raceOnce calls each tool and counts those that did something.
func (w world) raceOnce(t *testing.T, p string) (done int) {
	got, _, err := w.read(filewire.ReadFile{Path: p})
	expect.True(t, !strings.Contains(got, "another chat"), "read_file got out: %q, %v", got, err)
	entries, _, e1 := w.list(filewire.ListDir{Path: path.Dir(p)})
	expect.True(t, e1 != nil || path.Dir(p) == "." || !strings.Contains(entries, "only-outside"),
		"list_dir got out: %q", entries)
	_, e2 := w.write(p, "inside\n")
	_, e3 := w.append(p, "more\n")
	_, e4 := w.edit(p, "inside", "inside")
	for _, err := range []error{err, e1, e2, e3, e4} {
		if err == nil {
			done++
		}
	}
	return done
}

// naiveGetsOut is validatePath of seed 000, and then a read by name. The pause
// between is one that a busy machine makes; without it the race is won as well,
// only later.
func naiveGetsOut(t *testing.T, w world, p string) {
	t.Helper()
	name := w.home + "/" + p
	for end := time.Now().Add(5 * time.Minute); time.Now().Before(end); {
		real, err := filepath.EvalSymlinks(name)
		if err != nil || !strings.HasPrefix(real, w.home+"/") {
			continue
		}
		time.Sleep(rand.N(20 * time.Microsecond))
		if b, err := os.ReadFile(name); err == nil && string(b) == secret {
			return
		}
	}
	t.Error("the check by names was not beaten once: this race tries nothing")
}

// TestMovedParent: a directory that is moved between the walk and the open is
// noticed by the name of what was opened, not opened under the name that was checked.
func TestMovedParent(t *testing.T) {
	w := newWorld(t)
	mkdir(t, w.home+"/open")
	put1(t, w.home+"/open/f", "x")
	p := must.Get(w.find(filewire.Read, "open/f"))(t)
	defer p.close()
	must.Do(t, os.Rename(w.home+"/open", w.home+"/denied"))
	f, _, err := p.open(unix.O_RDONLY)
	expect.True(t, errors.Is(err, errMoved), "opened %v, %v", f, err)
	q := must.Get(w.find(filewire.Write, "denied/new"))(t)
	defer q.close()
	tmp := must.Get(q.createTemp())(t)
	defer tmp.drop()
	must.Do(t, os.Rename(w.home+"/denied", w.home+"/open"))
	expect.Is(t, tmp.replace(), chat.ErrBusy, "written where the name was not checked")
}
