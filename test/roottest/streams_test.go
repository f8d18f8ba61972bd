package roottest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/filewire"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// readBy is how many bytes the threads of a process have read by read(2) and its like (proc(5),
// rchar). That of the process has its children's too.
func readBy(t *testing.T, pid int) int64 { return passedBy(t, pid, "rchar: ") }

// passedBy is readBy for one line of the files.
func passedBy(t *testing.T, pid int, line string) (all int64) {
	t.Helper()
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/io", pid))
	must.True(t, err == nil && len(threads) != 0, "process %d has no threads: %v", pid, err)
	for _, file := range threads {
		text, err := os.ReadFile(file)
		if err != nil {
			continue // the thread has ended
		}
		_, rest, _ := strings.Cut(string(text), line)
		n, _, _ := strings.Cut(rest, "\n")
		one := must.Get(strconv.ParseInt(n, 10, 64))(t)
		all += one
	}
	return all
}

// TestRootReadsNoOutput: what runs print does not pass through chatd-root, in whatever way it is
// asked for, and neither does what is written to one.
func TestRootReadsNoOutput(t *testing.T) {
	const size = 64 << 20
	d := startDaemon(t, options(t), "")
	c := must.First(d.Create(t.Context(), chat.Spec{ExternalID: "prints"}))(t)
	prints := chat.RunSpec{Command: fmt.Sprintf("head -c %d /dev/zero | tr '\\0' x", size)}
	root := d.cmd.Process.Pid
	for name, run := range map[string]func() (chat.RunResult, error){
		"waited for": func() (chat.RunResult, error) { return d.Run(t.Context(), c.ID, prints) },
		"streamed": func() (chat.RunResult, error) {
			return d.RunTo(t.Context(), c.ID, prints, func(string, []byte) {})
		},
		"background": func() (chat.RunResult, error) {
			spec := prints
			spec.OutputMax = chat.MaxOutputMax
			r, err := d.StartRun(t.Context(), c.ID, spec)
			if err != nil {
				return chat.RunResult{}, err
			}
			for range 4 {
				if shown := awaitRun(t, d, c.ID, r.ID); len(shown.Result.Stdout) < chat.MaxOutputMax/2 {
					t.Errorf("the background run shows %d bytes", len(shown.Result.Stdout))
				}
			}
			return d.FollowRun(t.Context(), c.ID, r.ID, "", func(chat.Frame) {})
		},
		"written to": func() (chat.RunResult, error) {
			r, err := d.StartRun(t.Context(), c.ID, chat.RunSpec{Command: "cat", OpenStdin: true})
			if err != nil {
				return chat.RunResult{}, err
			}
			body := io.NopCloser(io.LimitReader(endless{}, size))
			if err := d.WriteStdin(t.Context(), c.ID, r.ID, body, true); err != nil {
				return chat.RunResult{}, err
			}
			return d.FollowRun(t.Context(), c.ID, r.ID, "", func(chat.Frame) {})
		},
	} {
		before := readBy(t, root)
		res, err := run()
		expect.True(t, err == nil && res.StdoutBytes == size,
			"%s: %d bytes, %v", name, res.StdoutBytes, err)
		read := readBy(t, root) - before
		expect.True(t, read <= size/16, "%s: chatd-root has read %d bytes of %d", name, read, size)
	}
}

// TestRootCopiesNoFile: what is written to a file, read from one and shared does not pass through
// chatd-root, of an awake chat and of one that sleeps.
func TestRootCopiesNoFile(t *testing.T) {
	const size = 64 << 20
	d := startDaemon(t, options(t), "")
	a := must.First(d.Create(t.Context(), chat.Spec{ExternalID: "awake"}))(t)
	b := must.First(d.Create(t.Context(), chat.Spec{ExternalID: "asleep", Awake: new(false)}))(t)
	name := filewire.WriteFile{Path: "f", Stream: true}
	nowhere := func(filewire.Answer) io.Writer { return io.Discard }
	whole := filewire.ReadFile{Path: "f", Stream: true}
	root := d.cmd.Process.Pid
	for _, c := range []struct {
		what string
		do   func() (int64, error)
	}{
		{"written", func() (int64, error) {
			out, err := d.WriteFile(t.Context(), a.ID, name, io.LimitReader(endless{}, size))
			return out.Bytes, err
		}},
		{"appended to", func() (int64, error) {
			out, err := d.AppendFile(t.Context(), b.ID, name, io.LimitReader(endless{}, size))
			return out.Size, err
		}},
		{"read", func() (int64, error) {
			out, err := d.ReadFile(t.Context(), a.ID, whole, nowhere)
			return out.Bytes, err
		}},
		{"read asleep", func() (int64, error) {
			out, err := d.ReadFile(t.Context(), b.ID, whole, nowhere)
			return out.Bytes, err
		}},
		{"shared", func() (int64, error) {
			out, err := d.Share(t.Context(), a.ID, chat.Share{To: b.ID, Path: "f"})
			return out.Bytes, err
		}},
	} {
		read, wrote := readBy(t, root), passedBy(t, root, "wchar: ")
		n, err := c.do()
		expect.True(t, err == nil && n == size, "%s: %d bytes, %v", c.what, n, err)
		read, wrote = readBy(t, root)-read, passedBy(t, root, "wchar: ")-wrote
		expect.True(t, read <= size/16 && wrote <= size/16,
			"%s: chatd-root has read %d bytes and written %d of %d", c.what, read, wrote, size)
	}
}

// TestFrontKilledUnderTools: kill -9 of the front amid a stream to a file and one from it, of chats
// awake and asleep. Nothing of the calls is left in chatd-root, and no part of the file.
func TestFrontKilledUnderTools(t *testing.T) {
	d := startDaemon(t, options(t), "")
	a := must.First(d.Create(t.Context(), chat.Spec{ExternalID: "awake"}))(t)
	b := must.First(d.Create(t.Context(), chat.Spec{ExternalID: "asleep", Awake: new(false)}))(t)
	fds := descriptorsOf(t, d.cmd.Process.Pid)
	for _, id := range []chat.ID{a.ID, b.ID, a.ID, b.ID} {
		front, result := frontOf(t, d.cmd.Process.Pid), make(chan error, 1)
		body := &signalling{begun: make(chan struct{})}
		go func() {
			_, err := d.WriteFile(t.Context(), id, filewire.WriteFile{Path: "f", Stream: true}, body)
			result <- err
		}()
		<-body.begun
		must.Do(t, unix.Kill(front, unix.SIGKILL))
		expect.True(t, <-result != nil, "the caller is told that the file was written")
		until(t, "another front comes", func() bool {
			return frontOf(t, d.cmd.Process.Pid) != front
		})
		until(t, "a file tool answers, and nothing is left of the file", func() bool {
			var list bytes.Buffer
			to := func(filewire.Answer) io.Writer { return &list }
			_, err := d.ListDir(t.Context(), id, filewire.ListDir{}, to)
			return err == nil && !strings.Contains(list.String(), " f\n")
		})
	}
	until(t, "chatd-root has its descriptors back", func() bool { // but the awake chat's sockstat
		return descriptorsOf(t, d.cmd.Process.Pid) <= fds+2
	})
}

// signalling is content without an end, which says when a megabyte of it was read.
type signalling struct {
	endless
	begun chan struct{}
	n     int
}

func (s *signalling) Read(p []byte) (int, error) {
	n, err := s.endless.Read(p)
	if s.n < 1<<20 && s.n+n >= 1<<20 {
		close(s.begun)
	}
	s.n += n
	return n, err
}

// TestFrontKilledUnderRuns: kill -9 of the front while runs print. One of the background goes on,
// and all that it printed is there; one that a caller waited for ends.
func TestFrontKilledUnderRuns(t *testing.T) {
	d := startDaemon(t, options(t), "")
	c := must.First(d.Create(t.Context(), chat.Spec{ExternalID: "killed"}))(t)
	back := must.Get(d.StartRun(t.Context(), c.ID, chat.RunSpec{
		Command: "for i in $(seq 3000); do echo $i; [ $((i % 100)) -gt 0 ] || sleep 0.1; done",
	}))(t)
	front, printing := frontOf(t, d.cmd.Process.Pid), make(chan struct{})
	result := going(func() error {
		begun := false
		_, err := d.RunTo(t.Context(), c.ID, chat.RunSpec{Command: "while echo $$; do sleep 0.01; done"},
			func(string, []byte) {
				if !begun {
					begun = true
					close(printing)
				}
			})
		return err
	})
	<-printing
	must.Do(t, unix.Kill(front, unix.SIGKILL))
	expect.True(t, <-result != nil, "the caller of a run is told that it has ended well")
	until(t, "another front comes", func() bool { return frontOf(t, d.cmd.Process.Pid) != front })
	until(t, "the run that was waited for ends", func() bool {
		all, err := d.Runs(t.Context(), c.ID)
		return err == nil && len(all.Runs) == 1 && all.Runs[0].ID == back.ID
	})
	var want strings.Builder
	for i := range 3000 {
		fmt.Fprintln(&want, i+1)
	}
	if r := awaitRun(t, d, c.ID, back.ID); r.Result.Exit != 0 || r.Result.Stdout != want.String() {
		t.Errorf("the background run: exit %d, %d bytes, want %d",
			r.Result.Exit, len(r.Result.Stdout), want.Len())
	}
}

// TestLostOnTheWay: a command that nsenter(1) did not bring into its session says what nsenter said
// of it. The front never had its streams.
func TestLostOnTheWay(t *testing.T) {
	m := open(t, options(t))
	c := create(t, m, "lost", "default")
	dir := t.TempDir()
	const script = "#!/bin/sh\necho nsenter: I know no way >&2\nhead -c 30000 /dev/zero >&2\nexit 3\n"
	must.Do(t, os.WriteFile(filepath.Join(dir, "nsenter"), []byte(script), 0o755))
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	_, err := m.Run(operator(t.Context()), c.ID, chat.RunSpec{
		Command: "echo here", Started: func(string) { t.Error("it has begun") },
	})
	const want = `exit 3 on the way in: "nsenter: I know no way\n`
	if !errors.Is(err, chat.ErrInvalid) || !strings.Contains(err.Error(), want) || len(err.Error()) > 8<<10 {
		t.Errorf("got %.300v, want %q in it", err, want)
	}
}
