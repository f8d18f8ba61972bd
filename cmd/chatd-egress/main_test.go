package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chatd/chatd/test/must"
	"golang.org/x/sys/unix"
)

// mainEnv has the test binary be the program; "other" has it be no root first.
const mainEnv = "CHATD_TEST_MAIN"

func TestMain(m *testing.M) {
	switch os.Getenv(mainEnv) {
	case "":
		os.Exit(m.Run())
	case "other":
		if err := errors.Join(unix.Setgroups(nil), unix.Setgid(65534),
			unix.Setuid(65534)); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
	}
	main()
}

// program is a run of it as this user.
func program(args ...string) *exec.Cmd {
	cmd := exec.Command("/proc/self/exe", args...)
	cmd.Env = append(os.Environ(), mainEnv+"=same")
	return cmd
}

// other is a run of it as a user that is not root.
func other() *exec.Cmd {
	cmd := program()
	if os.Getuid() == 0 {
		cmd.Env = append(os.Environ(), mainEnv+"=other")
	}
	return cmd
}

func TestArguments(t *testing.T) {
	for _, c := range []struct {
		args []string
		code int
		out  string
	}{
		{[]string{"--help"}, 0, "usage: chatd-egress"},
		{[]string{"--version"}, 0, "chatd-egress version dev\n"},
		{[]string{"--nothing"}, 2, "see chatd-egress --help"},
		{[]string{"more"}, 2, `unexpected argument "more"`},
	} {
		cmd := program(c.args...)
		out, _ := cmd.CombinedOutput()
		if cmd.ProcessState.ExitCode() != c.code || !strings.Contains(string(out), c.out) {
			t.Errorf("%v: %s, %s", c.args, cmd.ProcessState, out)
		}
	}
}

func TestRefusesRoot(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("this is not root")
	}
	cmd := program()
	out, _ := cmd.CombinedOutput()
	if cmd.ProcessState.ExitCode() != 69 || !strings.Contains(string(out),
		"want a user of its own") {
		t.Errorf("%s, %s", cmd.ProcessState, out)
	}
}

func TestWantsListener(t *testing.T) {
	cmd := other()
	out, _ := cmd.CombinedOutput()
	if cmd.ProcessState.ExitCode() != 2 || !strings.Contains(string(out), "descriptor 3") {
		t.Errorf("%s, %s", cmd.ProcessState, out)
	}
}

// TestServes: it is confined, answers a connection of root alone, and ends on SIGTERM.
func TestServes(t *testing.T) {
	addr := &net.UnixAddr{Net: "unixpacket", Name: filepath.Join(t.TempDir(), "s")}
	l := must.Get(net.ListenUnix("unixpacket", addr))(t)
	defer l.Close()
	f, err := l.File()
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	cmd := other()
	cmd.ExtraFiles = []*os.File{f}
	errs := must.Get(cmd.StderrPipe())(t)
	must.Do(t, cmd.Start())
	c := must.Get(net.DialUnix("unixpacket", nil, addr))(t)
	defer c.Close()
	answered := hello(t, c)
	if answered != (os.Getuid() == 0) {
		t.Errorf("answered: %v", answered)
	}
	status := must.Get(os.ReadFile(fmt.Sprintf("/proc/%d/status", cmd.Process.Pid)))(t)
	for _, want := range []string{"NoNewPrivs:\t1\n", "Seccomp:\t2\n"} {
		if !strings.Contains(string(status), want) {
			t.Errorf("want %q in\n%s", want, status)
		}
	}
	must.Do(t, cmd.Process.Signal(unix.SIGTERM))
	out, _ := io.ReadAll(errs)
	if err := cmd.Wait(); err != nil {
		t.Errorf("%v, %s", err, out)
	}
}

// hello says hello, and reports whether it is answered.
func hello(t *testing.T, c *net.UnixConn) bool {
	t.Helper()
	_, err := io.WriteString(c, `{"id":1,"call":{"verb":"hello","upstreams":["192.0.2.1:53"]}}`)
	b := make([]byte, 1000)
	n, readErr := c.Read(b)
	return err == nil && readErr == nil && string(b[:n]) == `{"id":1,"answer":{}}`
}
