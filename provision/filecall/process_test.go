package filecall

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/chatd/chatd/internal/filewire"
	"github.com/chatd/chatd/internal/plan"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// TestProcess: a tool gets its rights and then the request, and the talk gets the streams.
func TestProcess(t *testing.T) {
	var heard []byte
	talk := func(_ context.Context, s filewire.LiveTool) (filewire.Answer, error) {
		buf := make([]byte, 64<<10)
		for bytes.Count(heard, []byte("\n")) < 2 { // cat says what it was told
			n, err := s.Out.Read(buf)
			if heard = append(heard, buf[:n]...); err != nil {
				return filewire.Answer{}, err
			}
		}
		return filewire.Answer{Size: s.Max}, errors.Join(s.In.Close(), s.Out.Close())
	}
	c := must.Get(New(readOf(t, "note"), talk))(t)
	c.links = []string{"/home/a/link"}
	c.Rules = &filewire.Rules{Agent: "main"}
	cmd := exec.Command("cat")
	p := must.Get(c.start(cmd, cmd.Start))(t)
	defer p.Close()
	a, err := p.Speak(t.Context(), plan.FileTool{Workspace: "/home/a", MaxBytes: 99})
	must.True(t, err == nil && a.Size == 99, "%+v, %v, heard %q", a, err, heard)
	may, req, _ := strings.Cut(string(heard), "\n")
	if !strings.Contains(may, "/home/a") || !strings.Contains(may, `"agent":"main"`) || !strings.Contains(req, `"note"`) ||
		!strings.Contains(req, "/home/a/link") {
		t.Errorf("the tool was told %q", heard)
	}
	select {
	case <-p.Ended():
	case <-time.After(time.Minute):
		t.Error("the end of the process is not noticed")
	}
}

// TestProcessThatDoesNotRead: the end of the call ends its request.
func TestProcessThatDoesNotRead(t *testing.T) {
	c := must.Get(New(readOf(t, strings.Repeat("x", filewire.MaxPath-1)), nil))(t)
	c.links = make([]string, 100)
	for i := range c.links {
		c.links[i] = "/" + strings.Repeat("x", 4000)
	}
	cmd := exec.Command("sleep", "1000")
	p := must.Get(c.start(cmd, cmd.Start))(t)
	defer func() {
		p.Close()
		_ = cmd.Process.Kill()
		<-p.Ended()
	}()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if _, err := p.Speak(ctx, plan.FileTool{}); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the request to a tool that does not read: %v", err)
	}
}

// TestStartFails: the error is that of start.
func TestStartFails(t *testing.T) {
	c, err := New(readOf(t, "note"), nil)
	must.Do(t, err)
	no := errors.New("no cgroup")
	_, err = c.start(exec.Command("cat"), func() error { return no })
	expect.True(t, errors.Is(err, no), "%v, want %v", err, no)
}

func readOf(t *testing.T, path string) filewire.Use {
	t.Helper()
	args := must.Get(json.Marshal(filewire.ReadFile{Path: path}))(t)
	return filewire.Use{Tool: filewire.ReadFileTool, Args: args}
}
