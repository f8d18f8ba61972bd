package sys

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// The figures of a process that took 3 seconds and has 3 pages.
const (
	figures    = " S 1 4711 4711 0 -1 4194560 9 0 0 0 250 50 7 7 20 0 1 0 123 4096 3 184\n"
	statusText = "Name:\tsh\\nUid:\\t0\nState:\tS (sleeping)\n" +
		"Uid:\t1000\t0\t0\t0\nNSpid:\t4711\t12\t3\n"
)

// hostileNames are what a process may be called.
var hostileNames = []string{
	"sh", "a) R 1 1 1", ") Z (", "\n\tUid:\t0\n", "\x1b[2J\xff\x9b", "", "(((",
}

func TestParseProcess(t *testing.T) {
	for _, name := range hostileNames {
		stat := "4711 (" + name + ")" + figures
		got, err := parseProcess(stat, statusText)
		want := ProcessInfo{UID: 1000, Inner: 3, Stat: Stat{Name: name, State: 'S', Flags: 4194560, Start: 123,
			CPU: 3 * time.Second, Memory: 3 * uint64(os.Getpagesize())}}
		expect.True(t, err == nil && got == want, "%q: %+v, %v", name, got, err)
	}
	negative := "1 (a) S" + strings.Repeat(" -1", 40)
	for _, text := range []string{"", "1", "1 (", "1 )(", "1 (a) S 1", negative} {
		if got, err := parseProcess(text, statusText); err == nil {
			t.Errorf("%q: %+v", text, got)
		}
	}
	sound := "1 (a) S" + strings.Repeat(" 1", 40)
	for _, text := range []string{"", "Uid:\n", "Uid:\t1\nNSpid:\n", "Uid:\t-1\nNSpid:\t1\n",
		"Uid:\t4294967296\nNSpid:\t1\n"} {
		if got, err := parseProcess(sound, text); err == nil {
			t.Errorf("%q: %+v", text, got)
		}
	}
}

func FuzzParseProcess(f *testing.F) {
	f.Add("4711 (sh)"+figures, statusText)
	f.Fuzz(func(_ *testing.T, stat, status string) { _, _ = parseProcess(stat, status) })
}

// TestReadProcess reads this process, a zombie, and one that is gone.
func TestReadProcess(t *testing.T) {
	p, err := ReadProcess(os.Getpid())
	name, _ := os.ReadFile("/proc/self/comm")
	if err != nil || p.UID != uint32(os.Getuid()) || p.Inner == 0 || p.Memory == 0 ||
		p.Name+"\n" != string(name) {
		t.Errorf("%+v, %v", p, err)
	}
	cmd := exec.Command("true")
	must.Do(t, cmd.Start())
	const look = unix.WEXITED | unix.WNOWAIT
	must.Do(t, unix.Waitid(unix.P_PID, cmd.Process.Pid, nil, look, nil))
	if p, err := ReadProcess(cmd.Process.Pid); err != nil || p.State != 'Z' || p.Inner == 0 {
		t.Errorf("a zombie: %+v, %v", p, err)
	}
	dir := must.Get(os.OpenRoot("/proc/" + strconv.Itoa(cmd.Process.Pid)))(t)
	defer dir.Close()
	must.Do(t, cmd.Wait())
	if p, err := ReadProcess(cmd.Process.Pid); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("one that is gone: %+v, %v", p, err)
	}
	if s, err := readProcFile(dir, "stat"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("one that is gone, by its directory: %q, %v", s, err)
	}
}
