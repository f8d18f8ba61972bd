package roottest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/filewire"
	"github.com/chatd/chatd/provision"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// everyTool calls each tool on a path and returns what came of it.
func everyTool(ctx context.Context, m *manager, id chat.ID, name string) map[filewire.Tool]error {
	text := "new"
	content := &strings.Builder{}
	begin := func(filewire.Answer) io.Writer { return content }
	out := map[filewire.Tool]error{
		filewire.ReadFileTool:   expect.Err(m.ReadFile(ctx, id, filewire.ReadFile{Path: name}, begin)),
		filewire.ListDirTool:    expect.Err(m.ListDir(ctx, id, filewire.ListDir{Path: name}, begin)),
		filewire.EditFileTool:   expect.Err(m.EditFile(ctx, id, filewire.EditFile{Path: name, OldText: "secret", NewText: text})),
		filewire.AppendFileTool: expect.Err(m.AppendFile(ctx, id, filewire.WriteFile{Path: name, Content: &text}, nil)),
		filewire.WriteFileTool:  expect.Err(m.WriteFile(ctx, id, filewire.WriteFile{Path: name, Content: &text}, nil)),
	}
	if content.Len() > 0 {
		out["content"] = errors.New(content.String())
	}
	return out
}

// TestToolsKeepApart: A's tools reach nothing of B, of the host and of the daemon,
// by whatever name.
func TestToolsKeepApart(t *testing.T) {
	opt := options(t)
	m := open(t, opt)
	b := create(t, m, "victim", "default")
	put(t, m, b.ID, "note", "secret of b")
	put(t, m, b.ID, "/tmp/note", "secret of b")
	bTmp, _ := privateTrees(opt, b)
	inBothPhases(t, m, func(t *testing.T, a chat.Chat) {
		link := func(name, target string) string {
			must.Do(t, os.Symlink(target, filepath.Join(a.Home, name)))
			return name
		}
		up := strings.Repeat("../", 20)
		for _, name := range []string{
			b.Home + "/note", b.Home, up + b.Home + "/note", "../" + string(b.ID) + "/note", "x/../../" + string(b.ID) + "/note",
			link("abs", b.Home+"/note"), link("rel", "../"+string(b.ID)+"/note"), link("dir", b.Home) + "/note", link("homes", opt.Homes) + "/" + string(b.ID) + "/note",
			link("root", "/") + b.Home + "/note", link("proc", "/proc/self/root") + b.Home + "/note", "/proc/1/root" + b.Home + "/note",
			bTmp + "/note", "/tmp/../" + bTmp + "/note", filepath.Join(opt.State, "audit.jsonl"), filepath.Join(opt.State, "state.db"), "/etc/shadow", "/dev/null",
			filepath.Join(opt.Run, "chatd.sock"), "/opt/chatd/chatd-shim",
		} {
			for tool, err := range everyTool(operator(t.Context()), m, a.ID, name) {
				expect.Is(t, err, chat.ErrDenied, "%s %s", tool, name)
			}
		}
		if text, err := get(t, m, a.ID, "/tmp/note"); err == nil {
			t.Errorf("A's /tmp has %q of B's", text)
		}
	})
	expect.Equal(t, must.Get(get(t, m, b.ID, "note"))(t), "secret of b", "B's file")
}

// TestToolsOddFiles: a file that is not regular is refused immediately, and no hard link leads to
// another owner's file.
func TestToolsOddFiles(t *testing.T) {
	opt := options(t)
	m := open(t, opt)
	c := create(t, m, "odd", "default")
	run(t, m, c.ID, "mkfifo fifo; python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind(\"sock\")'; ln -s fifo link; ln -s /dev/zero zero")
	roots := filepath.Join(filepath.Dir(opt.Homes), "roots")
	must.Do(t, os.WriteFile(roots, []byte("secret"), 0o644))
	must.Do(t, os.Link(roots, filepath.Join(c.Home, "roots")))
	try := func(t *testing.T) {
		for _, name := range []string{"fifo", "sock", "link"} {
			must.Do(t, within(t, name, func() error {
				for tool, err := range everyTool(operator(t.Context()), m, c.ID, name) {
					expect.Is(t, err, chat.ErrInvalid, "%s %s", tool, name)
				}
				return nil
			}))
		}
		for tool, err := range everyTool(operator(t.Context()), m, c.ID, "zero") {
			expect.Is(t, err, chat.ErrDenied, "%s zero", tool)
		}
		for tool, err := range everyTool(operator(t.Context()), m, c.ID, "roots") {
			if !errors.Is(err, chat.ErrDenied) && tool != filewire.ListDirTool {
				t.Errorf("%s of another's file by a hard link: %v", tool, err)
			}
		}
	}
	t.Run("awake", try)
	must.Get(m.Sleep(operator(t.Context()), c.ID))(t)
	t.Run("asleep", try)
	isAsleep(t, m, c)
}

// TestToolsAttacked: a chat that wants to stop its file tool, end it, or speak in its place finds no
// tool, also where Landlock is left out; and its tools work.
func TestToolsAttacked(t *testing.T) {
	for name, without := range map[string][]chat.LayerName{
		"walls": nil, "no landlock": {chat.LayerLandlock},
	} {
		opt := withRules(t, attackOptions(t))
		if opt.Without = without; without != nil {
			opt.AllowMissing = []chat.LayerName{chat.LayerNetwork}
		}
		m := open(t, opt)
		attackTool(t, opt, m, name+" stop", "stop", "ready")
		attackTool(t, opt, m, name+" end", "end", "ready")
		attackTool(t, opt, m, name+" speak", "speak", "ready", "junk")
	}
}

func attackTool(t *testing.T, opt provision.Options, m *manager, name string, act ...string) {
	t.Run(name, func(t *testing.T) {
		a := inmateOf(t, m, "attacked "+name, "default")
		a.background(t, "ready", act...)
		must.Do(t, within(t, name, func() error { return useAttacked(t, m, a) }))
		expect.Is(t, expect.Err(get(t, m, a.ID, ".env")), chat.ErrDenied, "what the rules deny")
		expect.True(t, !exists(a.in("ready.seen"))() && !exists(a.in("ready.spoke"))(),
			"the chat saw its file tool")
		must.Do(t, m.Reap(operator(t.Context()), a.ID))
		gone(t, opt, a.Chat)
	})
}

// useAttacked uses the tools for a while.
func useAttacked(t *testing.T, m *manager, a inmate) error {
	for i := range 20 {
		text := fmt.Sprint("text ", i)
		put(t, m, a.ID, "f", text)
		if got, err := get(t, m, a.ID, "f"); err != nil || got != text {
			return fmt.Errorf("read %q, %w", got, err)
		}
	}
	return nil
}

// counter counts what is written to it.
type counter int64

func (c *counter) Write(p []byte) (int, error) { *c += counter(len(p)); return len(p), nil }

// TestToolsSwapped: a name that changes between an own file and a link to a denied
// one is read as the one, or denied; never is the denied one read.
func TestToolsSwapped(t *testing.T) {
	m := open(t, withRules(t, attackOptions(t)))
	a := inmateOf(t, m, "swap", "default")
	a.sh(t, "echo mine > a && mkdir wo && echo secret > wo/f && ln -s wo/f b")
	a.background(t, "ready", "swap", "ready", "a", "b")
	var read, denied int
	for end := time.Now().Add(longEnough); read+denied < 200 || (read == 0 || denied == 0) && time.Now().Before(end); {
		text, err := get(t, m, a.ID, "a")
		switch {
		case strings.Contains(text, "secret"):
			t.Fatal("the denied file was read")
		case err == nil && text == "mine\n":
			read++
		case errors.Is(err, chat.ErrDenied):
			denied++
		case !errors.Is(err, chat.ErrBusy):
			t.Fatalf("%q, %v", text, err)
		}
	}
	expect.True(t, read != 0 && denied != 0,
		"read %d times, denied %d times: nothing was swapped", read, denied)
}

// TestHostileTalk: a hostile front that speaks with a tool cannot change chatd-root's request, and
// the kernel denies what it lets pass of the rules.
func TestHostileTalk(t *testing.T) {
	opt := withRules(t, options(t))
	m := open(t, opt)
	inBothPhases(t, m, func(t *testing.T, c chat.Chat) {
		ctx := operator(t.Context())
		put(t, m, c.ID, "f", "mine")
		put(t, m, c.ID, "other", "secret")
		must.Do(t, os.WriteFile(filepath.Join(c.Home, ".env"), []byte("secret"), 0o644))
		must.Do(t, os.Symlink(".env", filepath.Join(c.Home, "plain")))
		use := func(args filewire.Args, tool filewire.Tool, talk filewire.Talk) error {
			u := must.Get(filewire.NewUse(tool, args))(t)
			return m.Manager.FileTool(ctx, c.ID, u, talk)
		}
		var said bytes.Buffer
		_ = use(filewire.ReadFile{Path: "f"}, filewire.ReadFileTool,
			func(_ context.Context, s filewire.LiveTool) (filewire.Answer, error) {
				defer s.Out.Close()
				_, err := io.WriteString(s.In, `{"tool":"read_file","parameters":{"path":"other"}}`+"\n"+
					`{"tool":"write_file","parameters":{"path":"made","content":"x"}}`+"\n")
				err = errors.Join(err, s.In.Close())
				_, copied := said.ReadFrom(s.Out)
				return filewire.Answer{}, errors.Join(err, copied)
			})
		expect.True(t, !strings.Contains(said.String(), "secret"),
			"the tool reads another file: %q", said.String())
		expect.True(t, expect.Err(os.Lstat(filepath.Join(c.Home, "made"))) != nil,
			"the tool makes another file")
		said.Reset()
		err := use(filewire.ReadFile{Path: "plain"}, filewire.ReadFileTool,
			func(_ context.Context, s filewire.LiveTool) (filewire.Answer, error) {
				defer s.Out.Close()
				begin := func(filewire.Answer) io.Writer { return &said }
				x := filewire.Exchange{Begin: begin, Limit: 100}
				return filewire.Speak(s.In, s.Out, x)
			})
		expect.True(t, errors.Is(err, chat.ErrDenied) && said.Len() <= 0,
			"a rule that is passed over: %v, %q", err, said.String())
	})
}
