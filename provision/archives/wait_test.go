package archives

import (
	"context"
	"errors"
	"io"
	"os/exec"
	"strings"
	"testing"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/provision/session"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// played lets a shell script play chatd-archive.
func played(t *testing.T, ctx context.Context, task Task, script string) (Result, error) {
	t.Helper()
	var b session.Files
	defer b.Close()
	cmd := exec.Command("/bin/sh", "-c", script)
	p := must.Get(task.Start(cmd, &b, cmd.Start))(t)
	defer p.Close()
	r, err := p.Wait(ctx)
	_ = cmd.Process.Kill() // as the end of its session does
	<-p.Ended()
	return r, err
}

const answer = `{"done":{"entries":3,"bytes":7,"sha256":"ab","check_identity":"key"}}`

// TestWait: input, output, progress and the answer arrive.
func TestWait(t *testing.T) {
	var out strings.Builder
	var seen []int64
	r, err := played(t, t.Context(), Task{
		Args: []string{"pack"}, In: strings.NewReader("in"),
		Out:      func(in io.Reader) error { _, err := io.Copy(&out, in); return err },
		Progress: func(entries, bytes int64) { seen = append(seen, entries, bytes) },
	}, `cat; echo ' out'; echo '{"progress":{"entries":1,"bytes":2}}' >&2; echo '`+answer+`' >&2`)
	if err != nil || r.Entries != 3 || r.Bytes != 7 || r.SHA256 != "ab" || r.CheckIdentity != "key" {
		t.Errorf("%+v, %v", r, err)
	}
	expect.True(t, out.String() == "in out\n" && len(seen) == 2 && seen[0] == 1 && seen[1] == 2,
		"out %q, progress %v", out.String(), seen)
}

// TestWaitFails: each way to fail is an error with its reason, and none hangs.
func TestWaitFails(t *testing.T) {
	full := errors.New("the disk is full")
	for name, c := range map[string]struct {
		script, want string
		kind         error
		out          func(io.Reader) error
	}{
		"a reported error": {
			script: `echo '{"error":{"text":"too deep","kind":"invalid"}}' >&2; exit 2`, want: "too deep", kind: chat.ErrInvalid},
		"an unknown kind": {script: `echo '{"error":{"text":"odd","kind":"no such"}}' >&2`, want: "odd"},
		"a complaint": {
			script: `echo bwrap: no room >&2; exit 1`, want: "bwrap: no room", kind: chat.ErrBusy},
		"no answer":      {script: `exit 0`, want: "without an answer", kind: chat.ErrBusy},
		"killed":         {script: `echo '{"progress":{"entries":1}}' >&2; kill -9 $$`, want: "without an answer"},
		"many names":     {script: `printf '{"done":{"left_names":["1"' >&2; for i in $(seq 30); do printf ',"x"' >&2; done; echo ']}}' >&2`, want: "without an answer"},
		"a long line":    {script: `head -c 300000 /dev/zero | tr '\0' x >&2`, want: "without an answer"},
		"a failing disk": {script: `cat /dev/zero`, want: "full", kind: full, out: func(io.Reader) error { return full }},
		"hostile text":   {script: `printf '{"error":{"text":"a\\u001b]0;b","kind":""}}\n' >&2`, want: `\x1b`},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := played(t, t.Context(), Task{
				Args: []string{"pack"}, In: strings.NewReader(strings.Repeat("in", 1<<20)), Out: c.out,
			}, c.script)
			if err == nil || !strings.Contains(err.Error(), c.want) || c.kind != nil && !errors.Is(err, c.kind) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
}

// TestWaitEndsWithItsCaller: a process that neither reads nor answers holds up nobody.
func TestWaitEndsWithItsCaller(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("the caller left")
	begun := make(chan bool)
	go func() { <-begun; cancel(why) }()
	_, err := played(t, ctx, Task{
		Args: []string{"pack"}, In: strings.NewReader(strings.Repeat("in", 1<<20)),
		Progress: func(int64, int64) { close(begun) },
	}, `echo '{"progress":{"entries":1}}' >&2; exec sleep 1000`)
	expect.True(t, errors.Is(err, why), "%v", err)
}
