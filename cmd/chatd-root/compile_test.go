package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/filerules"
	"github.com/chatd/chatd/internal/config/configfile"
	"github.com/chatd/chatd/test/must"
)

// TestMain is also the config step of the tests: an honest one, or one that a text has taken over.
func TestMain(m *testing.M) {
	if os.Args[0] != "chatd-config" {
		os.Exit(m.Run())
	}
	var out bytes.Buffer
	err := configfile.Step(os.Args[2:], os.Stdin, &out)
	if err != nil {
		fmt.Print(err)
		os.Exit(chat.ExitCode(err))
	}
	hostile(os.Args[len(os.Args)-1], out.Bytes())
}

// hostile answers as the last argument says: with a setting profiles/p/env/HOSTILE=… of a config, or
// by the name of a file of rules.
func hostile(how string, honest []byte) {
	_, how, _ = strings.Cut(how, "hostile-")
	from, to, _ := strings.Cut(how, "→")
	switch how {
	case "silent":
		os.Exit(0)
	case "empty":
		honest = []byte("{}")
	case "hanging":
		time.Sleep(time.Hour)
	case "endless":
		for {
			if _, err := os.Stdout.Write(honest); err != nil {
				os.Exit(0)
			}
		}
	case "telling":
		net, err := os.Readlink("/proc/self/ns/net")
		fmt.Print(os.Getuid(), os.Getgid(), len(os.Environ()), net, err)
		os.Exit(2)
	case "rude":
		fmt.Print("\x1b[2J cleared")
		os.Exit(2)
	}
	fmt.Print(strings.Replace(string(honest), from, to, 1))
	os.Exit(0)
}

// compilerOf has the test binary as its config step.
func compilerOf(t *testing.T, file string) compiler {
	t.Helper()
	return compiler{program: must.Get(os.Executable())(t), file: file, apart: true}
}

// TestHostileStep: a config step that was taken over grants nothing that a config could not, and not
// for another text; it cannot make chatd-root wait or fill up, nor write to a terminal.
func TestHostileStep(t *testing.T) {
	file := filepath.Join(t.TempDir(), "chatd.yaml")
	must.Do(t, os.WriteFile(file, []byte("profiles: {p: {env: {X: y}}}\n"), 0o600))
	for how, want := range map[string]string{
		"silent":                   "cannot read the compiled config: EOF",
		"empty":                    "cannot use profiles.default: want this profile",
		"endless":                  "wrote more than 16777216 bytes",
		"rude":                     "\ufffd[2J cleared",
		`"X":"y"→"LD_X":"y"`:       "profiles.p.env.LD_X",
		`"/var/lib/chatd"→"state"`: "want an absolute path",
		`"uids":"1879048192-1895825407"→"uids":"0-9"`: "want LOW-HIGH within 65536",
		`"uids":"1879048192-1895825407",→`:            "want LOW-HIGH within 65536",
		`"backend":"auto"→"backend":"none"`:           "want one of auto, systemd, cgroupfs",
		`"max_awake":500→"max_awake":0`:               "want 1 to",
		`"account":"auto"→"account":"auto","more":1`:  "unknown field",
		`"user":"chatd"→"user":"chatd-egress"`:        "want another than user",
		`"name":"p"→"name":"default"`:                 "want the name of the profile",
		`"sum":"→"sum":"0`:                            "the config step compiled another text",
	} {
		c := compilerOf(t, file)
		c.set = []string{"profiles/p/env/Z=hostile-" + how}
		_, err := c.config(t.Context())
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", how, err, want)
		}
	}
	c := compilerOf(t, file)
	c.set = []string{"profiles/p/env/Z=hostile-none"}
	if _, err := c.config(t.Context()); err != nil {
		t.Errorf("an honest step: %v", err)
	}
}

// TestHostileStepOfRules: as TestHostileStep, of a file of rules.
func TestHostileStepOfRules(t *testing.T) {
	for how, want := range map[string]string{
		"silent":                               "cannot read compiled rules: EOF",
		"endless":                              fmt.Sprintf("wrote more than %d bytes", filerules.MaxCompiled),
		`"ops":15→"ops":99`:                    "want a rule with effect",
		`"globs":["~x"]→"globs":["{a,b}","["]`: "want a class",
		`"sum":"→"sum":"0`:                     "the config step compiled another text",
	} {
		file := filepath.Join(t.TempDir(), "hostile-"+strings.ReplaceAll(how, "/", "∕"))
		must.Do(t, os.WriteFile(file, []byte("access: {deny: [~x]}\n"), 0o600))
		_, err := compilerOf(t, "").rules(t.Context(), file)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", how, err, want)
		}
	}
}

// TestStepHasNothing: a step of root has a uid of nobody's, no variables, and a network of its own.
func TestStepHasNothing(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("SKIPPED: needs root, which has a privilege to give up")
	}
	ours := must.Get(os.Readlink("/proc/self/ns/net"))(t)
	c := compilerOf(t, "")
	c.set = []string{"cgroup=hostile-telling"}
	_, err := c.config(t.Context())
	var uid, gid, variables int
	var net string
	if n, scan := fmt.Sscan(fmt.Sprint(err), &uid, &gid, &variables, &net); n != 4 {
		t.Fatalf("the step says %v: %v", err, scan)
	}
	if uid != stepID || gid != stepID || variables != 0 || net == ours {
		t.Errorf("the step is uid %d, gid %d, with %d variables, in %s", uid, gid, variables, net)
	}
}

// TestStepEnds: a step that does not end is ended.
func TestStepEnds(t *testing.T) {
	stepTimeout = time.Second
	t.Cleanup(func() { stepTimeout = 30 * time.Second })
	c := compilerOf(t, "")
	c.set = []string{"cgroup=hostile-hanging"}
	if _, err := c.config(t.Context()); err == nil || !strings.Contains(err.Error(), "was ended") {
		t.Errorf("a step that sleeps: %v", err)
	}
}

// TestStepRefuses: what a step says of a text is an error of its kind, and a program that is not
// there is named.
func TestStepRefuses(t *testing.T) {
	_, err := load(t, "profiles: {p: {limits: {memory_max: x}}}\nmore: 1\n")
	if !errors.Is(err, chat.ErrInvalid) || !strings.Contains(err.Error(), "chatd.yaml:2: unknown key") {
		t.Errorf("a config with two faults: %v", err)
	}
	_, err = compiler{program: "/none/chatd"}.config(t.Context())
	if !errors.Is(err, chat.ErrUnsupported) || !strings.Contains(err.Error(), "/none/chatd") {
		t.Errorf("without a program: %v", err)
	}
}
