package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/front/api"
	"github.com/chatd/chatd/front/api/apitest"
	"github.com/chatd/chatd/front/runs"
	"github.com/chatd/chatd/internal/config/configfile"
	"github.com/chatd/chatd/internal/filewire"
	"github.com/chatd/chatd/provision/listen"
)

// programs are what the test binary is by its first argument.
var programs = map[string]func(){
	"chatd": func() {
		if f := os.Getenv(rootEnv); f != "" {
			findProgram = func(string) string { return f }
		}
		main()
	},
	"chatd-config": main, // the config step, as chatd-root calls it
}

func TestMain(m *testing.M) { testscript.Main(m, programs) }

// rootEnv names the chatd-root that the scripts' chatd asks: it is not beside the tests.
const rootEnv = "CHATD_TEST_ROOT"

func buildRoot(t *testing.T) string {
	t.Helper()
	if _, err := exec.LookPath("go"); err != nil {
		t.Skip("SKIPPED: needs go, to build chatd-root")
	}
	file := filepath.Join(t.TempDir(), "chatd-root")
	cmd := exec.Command("go", "build", "-o", file, "../chatd-root")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("cannot build chatd-root: %v: %s", err, out)
	}
	return file
}

// TestCommands runs the commands as they are typed, against a server with chats
// in memory. The scripts' own command fake changes those behind the API.
func TestCommands(t *testing.T) { script(t, "testdata", "") }

// TestCommandsAskRoot runs those that ask chatd-root what only the host can tell.
func TestCommandsAskRoot(t *testing.T) { script(t, "testdata/askroot", buildRoot(t)) }

func script(t *testing.T, dir, root string) {
	testscript.Run(t, testscript.Params{
		Dir:                 dir,
		RequireExplicitExec: true,
		Setup: func(env *testscript.Env) error {
			env.Setenv(rootEnv, root)
			return serveMemory(env)
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"fake": fake},
	})
}

type memoryKey struct{}

func serveMemory(env *testscript.Env) error {
	dir, err := os.MkdirTemp("", "chatd-cli-") // a short path, for sun_path
	if err != nil {
		return err
	}
	mem := apitest.New()
	mem.Egress = []chat.Allow{{Host: "*.example.com", Low: 443, High: 443}}
	mem.EgressMayAdd = []chat.Allow{{Host: "*.example.com", Low: 1, High: 65535}}
	l, err := listen.Unix(filepath.Join(dir, "s"))
	if err != nil {
		return err
	}
	chats, err := runs.Open(context.Background(), mem, runs.Options{})
	if err != nil {
		return err
	}
	s := api.NewServer(api.ServerOptions{Chats: chats, Operators: []uint32{uint32(os.Getgid())}, NameOf: func(uint32) (string, error) { return "root", nil }})
	done := make(chan error, 1)
	go func() { done <- s.Serve(l) }()
	env.Defer(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := s.Shutdown(ctx); err != nil {
			env.T().Log(err)
		}
		<-done
		chats.Close()
		if err := os.RemoveAll(dir); err != nil {
			env.T().Log(err)
		}
	})
	env.Values[memoryKey{}] = mem
	env.Setenv("CHATD_SOCKET", filepath.Join(dir, "s"))
	env.Setenv("A", string(idOf("a")))
	env.Setenv("B", string(idOf("b")))
	env.Setenv("C", string(idOf("c")))
	env.Setenv("D", string(idOf("d")))
	return nil
}

// idOf is the id that a Memory gives root's chat of this external id.
func idOf(externalID string) chat.ID {
	id, err := chat.DeriveID([]byte("test key"), "root", externalID, 0)
	if err != nil {
		panic(err)
	}
	return id
}

// fake changes a chat: "fake age ID 48h", "fake stick ID", "fake damage ID",
// "fake missing LAYER", "fake deny NAME", "fake due ID TIME".
func fake(ts *testscript.TestScript, neg bool, args []string) {
	mem := ts.Value(memoryKey{}).(*apitest.Memory)
	switch args[0] {
	case "age":
		d, err := time.ParseDuration(args[2])
		ts.Check(err)
		mem.Age(chat.ID(args[1]), d)
	case "due": // every schedule of the chat
		at, err := time.Parse(time.RFC3339, args[2])
		ts.Check(err)
		mem.Due(chat.ID(args[1]), at)
	case "stick":
		mem.Stick(chat.ID(args[1]), fmt.Errorf("it is held: %w", chat.ErrBusy))
	case "work": // CHAT WHAT,…
		what := strings.Split(strings.ReplaceAll(args[2], "ESC", "\x1b"), ",")
		disk := chat.DiskUsage{Bytes: 3 << 30, Inodes: 4321, Percent: 75}
		mem.Work(chat.ID(args[1]), disk, what...)
	case "use-after":
		mem.UseAfter(chat.ID(args[1]), chat.ID(args[2]))
	case "deny": // everything of that last name
		denied := args[1]
		mem.Rule(func(op filewire.Op, name string) *filewire.Denial {
			if path.Base(name) != denied {
				return nil
			}
			return &filewire.Denial{Op: op, Path: name, Rule: "deny " + denied, Place: "rules.yaml:3", Layer: "global rules", Message: "Access denied: " + name + " blocked by policy"}
		})
	case "damage":
		mem.Damage(chat.ID(args[1]), chat.Reaping, []chat.Layer{
			{Name: chat.LayerCPU, State: chat.LayerWeaker, By: "cgroup v1"}, {Name: chat.LayerEgress, State: chat.LayerOff}, {Name: chat.LayerHome, State: chat.LayerOn}})
	case "missing":
		mem.Lack(chat.Layer{Name: chat.LayerName(args[1]), State: chat.LayerOff, Probe: "tried\x1b[2J it", Fix: "apt-get install iptables"})
	case "trouble":
		mem.Trouble(chat.Status{
			Layers:   []chat.Layer{{Name: chat.LayerEgress, State: chat.LayerOff, Probe: "tried\x1b[2J it"}},
			Bounds:   []chat.Bound{{Name: "max_awake", Used: 400, Max: 500}},
			Shares:   []chat.ShareUse{{Owner: "bridge", Share: "chats", Used: 15000, Limit: 20000}},
			Disks:    []chat.Disk{{For: "state", Path: "/var/lib/chatd", Size: 10 << 30, Inodes: 100, FreeInodes: 50, ReadOnly: true}},
			Findings: []string{"profile default: the guard is off: no command is refused before it runs"},
			Failures: []chat.Failure{{At: time.Now(), Action: "wake", Chat: "3bd701762fd7e5ab", By: "bridge", Error: "cannot\x1b[2J wake"}},
		})
	case "carried": // CHAT VERDICT TO COUNT [WHY]
		n, err := strconv.ParseInt(args[4], 10, 64)
		ts.Check(err)
		k := chat.EgressKind{Verdict: chat.EgressVerdict(args[2]), Host: args[3], Port: 443}
		if len(args) > 5 {
			k.Why = args[5]
		}
		mem.Carried(chat.ID(args[1]), chat.EgressEvent{Time: time.Now(), Until: time.Now(),
			EgressKind: k, Count: n, Sent: 2048 * n, Received: 3 * n})
	case "connected": // CHAT TO
		mem.Connected(chat.ID(args[1]), chat.EgressConnection{Since: time.Now(), Host: args[2],
			Port: 443, Sent: 2048, Received: 7})
	case "untold":
		mem.Layer(chat.Layer{Name: chat.LayerName(args[1]), State: chat.LayerUnknown, Probe: "no space left on device", Fix: "make room"})
	default:
		fakeArchive(ts, mem, args)
	}
}

// fakeArchive is fake for archives: "fake archived VARIABLE CHAT", "fake slow-archive CHAT", "fake
// change-archive NAME", "fake damage-archive NAME".
func fakeArchive(ts *testscript.TestScript, mem *apitest.Memory, args []string) {
	switch args[0] {
	case "archived": // the variable is the name of the chat's newest
		all, err := mem.Archives(asRoot(), chat.ArchiveFilter{Chat: chat.ID(args[2])})
		ts.Check(err)
		ts.Setenv(args[1], string(all[len(all)-1].Name))
	case "change-archive":
		mem.ChangeArchive(chat.ArchiveName(args[1]), func(a *chat.Archive) {
			expires := time.Now().Add(24*30*time.Hour + time.Minute)
			a.Size, a.Encrypted, a.ExpiresAt = 3<<20, true, &expires
		})
	case "damage-archive":
		mem.DamageArchive(chat.ArchiveName(args[1]))
	case "slow-archive": // it is looked at twice while it is under way
		mem.OnArchive = func(context.Context) error {
			for range 2 {
				<-mem.Archiving(chat.ID(args[1]), chat.ArchiveProgress{
					Entries: 12345, Bytes: 1288490189, Doing: "packing\x1b[2J",
				})
			}
			return nil
		}
	default:
		ts.Fatalf("fake: no %s", args[0])
	}
}

func asRoot() context.Context {
	return chat.WithCaller(context.Background(), chat.Caller{Role: chat.RoleOperator})
}

func FuzzChatArg(f *testing.F) {
	for _, s := range []string{"0123456789abcdef", "chat-0123456789abcdef", "chat-chat-0123456789abcdef", "-rf", "../../etc", "0123456789ABCDEF"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		id, err := chatArg(s)
		if (err == nil) != (id != "" && (string(id) == s || id.User() == s)) || err == nil && len(id) != 16 {
			t.Errorf("chatArg(%q) = %q, %v", s, id, err)
		}
	})
}

// Without a daemon doctor tries the walls itself.
func TestDoctorAlone(t *testing.T) {
	old := askRoot
	t.Cleanup(func() { askRoot = old })
	var asked configfile.Flags
	askRoot = func(_ context.Context, _ string, f configfile.Flags, _ ...string) ([]byte, error) {
		asked = f
		return []byte(`{"kernel": "9.9", "missing": ["cpu"]}`), nil
	}
	t.Setenv("CHATD_STATE", "/some/state")
	var out, errOut strings.Builder
	socket := filepath.Join(t.TempDir(), "none")
	code := mainWith(t.Context(), []string{"chatd", "doctor", "--socket", socket, "--config", "testdata/empty.yaml"}, strings.NewReader(""), &out, &errOut)
	if code != 69 || !strings.Contains(out.String(), "kernel 9.9") || !strings.Contains(errOut.String(), "missing: cpu") {
		t.Errorf("code %d\n%s\n%s", code, out.String(), errOut.String())
	}
	if asked.File != "testdata/empty.yaml" {
		t.Errorf("probed with %+v", asked)
	}
}

func TestFlagsFirst(t *testing.T) {
	for in, want := range map[string]string{
		"chatd":                              "chatd",
		"chatd --json ls":                    "chatd --json ls --",
		"chatd ls --json":                    "chatd --json ls --",
		"chatd show X --socket /s":           "chatd --socket /s show -- X",
		"chatd run X -- ls --json -l":        "chatd run -- X ls --json -l",
		"chatd run X -c ls --cwd=/tmp":       "chatd run -c ls --cwd=/tmp -- X",
		"chatd run X --timeout 1m -- a -- b": "chatd run --timeout 1m -- X a -- b",
		"chatd send X ls run":                "chatd send -- X ls run",
		"chatd send X -":                     "chatd send -- X -",
		"chatd nonsense -x":                  "chatd -x nonsense",
	} {
		if got := strings.Join(flagsFirst(newApp(), strings.Fields(in)), " "); got != want {
			t.Errorf("%s\n got %s\nwant %s", in, got, want)
		}
	}
}
