package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chatd/chatd/test/must"
	"golang.org/x/sys/unix"
)

// attempts are what a parser that was taken over would do.
var attempts = map[string]func() error{
	"read a file":  func() error { _, err := os.ReadFile("/etc/passwd"); return err },
	"write a file": func() error { return os.WriteFile(os.DevNull, []byte("x"), 0o600) },
	"make a socket": func() error {
		fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0)
		return errors.Join(err, unix.Close(fd))
	},
	"start a program": func() error { return exec.Command("/bin/true").Run() },
	"end a process":   func() error { return unix.Kill(os.Getpid(), 0) },
	"have memory": func() error {
		_, err := unix.Mmap(-1, 0, 2*compileData, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
		return err
	},
}

func init() { programs["chatd-attempt"] = attempt }

// attempt prints which attempts succeed, confined or, with an argument, not.
func attempt() {
	if len(os.Args) == 1 {
		if err := confineCompile(); err != nil {
			fmt.Println("not confined:", err)
		}
	}
	for name, do := range attempts {
		if do() == nil {
			fmt.Println(name)
		}
	}
}

// TestCompileCannot: the config step reads and writes what is open, and can do nothing else; without
// its confinement each attempt succeeds.
func TestCompileCannot(t *testing.T) {
	for _, without := range []bool{false, true} {
		cmd := exec.Command("/proc/self/exe")
		cmd.Args = []string{"chatd-attempt"}
		if without {
			cmd.Args = append(cmd.Args, "without")
		}
		out := must.Get(cmd.Output())(t)
		if n := bytes.Count(out, []byte("\n")); !without && n > 0 || without && n != len(attempts) {
			t.Errorf("without its confinement: %t; it could\n%s", without, out)
		}
	}
}

// TestCompile: the step compiles as it is started by chatd-root, and says what is wrong.
func TestCompile(t *testing.T) {
	for text, want := range map[string]string{"max_awake: 7\n": `"max_awake":7,`, "max_awake: 0\n": "c.yaml:1: max_awake"} {
		cmd := exec.Command("/proc/self/exe")
		cmd.Args, cmd.Stdin = []string{"chatd-config", "compile", "config", "c.yaml"}, strings.NewReader(text)
		out, err := cmd.CombinedOutput()
		if !bytes.Contains(out, []byte(want)) || (err != nil) != (text == "max_awake: 0\n") {
			t.Errorf("%s: %s, %v", text, out, err)
		}
	}
}

// containerCaps are what a container of Docker has by default.
const containerCaps = "+chown,+dac_override,+fsetid,+fowner,+mknod,+net_raw,+setgid,+setuid,+setfcap,+setpcap," +
	"+net_bind_service,+sys_chroot,+kill,+audit_write"

// within runs chatd with a bounding set. Its chatd-root is true(1), which ends well.
func within(t *testing.T, caps, verb string) (said string, exit int) {
	t.Helper()
	if os.Geteuid() != 0 {
		if os.Getenv("CHATD_TEST_REQUIRE") == "all" {
			t.Fatal("needs root")
		}
		t.Skip("SKIPPED: needs root, to take capabilities away")
	}
	self := must.Get(os.Executable())(t)
	dir := t.TempDir()
	must.Do(t, os.Symlink(self, filepath.Join(dir, "chatd")))
	cmd := exec.Command("setpriv", "--bounding-set="+caps, "--inh-caps=-all", filepath.Join(dir, "chatd"), "--socket",
		filepath.Join(dir, "none"), verb)
	cmd.Env = append(os.Environ(), rootEnv+"=/bin/true")
	out, err := cmd.CombinedOutput()
	if cmd.ProcessState == nil {
		t.Fatal(err)
	}
	return string(out), cmd.ProcessState.ExitCode()
}

// TestDefaultContainer: without the capabilities that make walls, doctor and serve name each that is
// missing, no other, and the options that give them to a container.
func TestDefaultContainer(t *testing.T) {
	for _, verb := range []string{"doctor", "serve"} {
		said, exit := within(t, "-all,"+containerCaps, verb)
		for _, name := range []string{"SYS_ADMIN", "NET_ADMIN", "SYS_PTRACE", "DAC_READ_SEARCH"} {
			if !strings.Contains(said, "CAP_"+name) || !strings.Contains(said, "--cap-add="+name+" ") {
				t.Errorf("%s does not name %s", verb, name)
			}
		}
		if exit != 69 || strings.Contains(said, "CHOWN") || !strings.Contains(said, "--privileged") {
			t.Errorf("%s: exit %d: %s", verb, exit, said)
		}
	}
}

// TestEnoughCapabilities: with those that make walls, also where one of the others is missing,
// chatd-root is asked.
func TestEnoughCapabilities(t *testing.T) {
	for _, caps := range []string{"-net_raw", "-all,+sys_admin,+net_admin," + containerCaps} {
		if said, exit := within(t, caps, "serve"); exit != 0 {
			t.Errorf("serve with %s: exit %d: %s", caps, exit, said)
		}
		if said, _ := within(t, caps, "doctor"); !strings.Contains(said, "cannot read what chatd-root found") {
			t.Errorf("doctor with %s: %s", caps, said)
		}
	}
}

// TestAttackHomeSize: what a home links to outside of it is not counted, and not read.
func TestAttackHomeSize(t *testing.T) {
	dir := t.TempDir()
	home, outside := filepath.Join(dir, "home"), filepath.Join(dir, "outside")
	for _, file := range []string{filepath.Join(home, "d", "mine"), filepath.Join(outside, "theirs")} {
		must.Do(t, os.MkdirAll(filepath.Dir(file), 0o755))
		must.Do(t, os.WriteFile(file, make([]byte, 1<<20), 0o600))
	}
	for _, name := range []string{"link", "d/link"} {
		must.Do(t, os.Symlink(outside, filepath.Join(home, name)))
	}
	if n, err := homeSize(home); err != nil || n < 1<<20 || n >= 2<<20 {
		t.Errorf("%d bytes, %v, want those of one file", n, err)
	}
	if n, err := homeSize(filepath.Join(dir, "none")); err != nil || n != 0 {
		t.Errorf("a home that is gone: %d, %v", n, err)
	}
}
