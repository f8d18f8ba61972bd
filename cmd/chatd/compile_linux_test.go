package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

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
		out, err := cmd.Output()
		if err != nil {
			t.Fatal(err)
		}
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
