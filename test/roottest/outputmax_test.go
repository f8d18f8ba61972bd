package roottest

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/provision"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// numbers is what "seq N" prints, at least size bytes of it.
func numbers(size int) (text string, n int) {
	var b strings.Builder
	for b.Len() < size {
		n++
		b.WriteString(strconv.Itoa(n) + "\n")
	}
	return b.String(), n
}

// keptOf compares what is kept of one stream with what was printed: the first half of bound, the
// line that counts what is left out, the tail.
func keptOf(t *testing.T, what, printed, kept string, total int64, bound int) {
	t.Helper()
	expect.True(t, total == int64(len(printed)),
		"%s: %d bytes are counted, want %d", what, total, len(printed))
	head, rest, marked := strings.Cut(kept, "\n[chatd left ")
	left, tail, ended := strings.Cut(rest, " bytes out]\n")
	if !marked || !ended || head != printed[:bound/2] || !strings.HasSuffix(printed, tail) {
		t.Errorf("%s: %d bytes: head of %d, left %q, tail of %d: %.30q … %.30q", what, len(kept), len(head), left, len(tail), kept, kept[max(0, len(kept)-30):])
	}
	expect.True(t, len(kept) <= bound && len(tail) >= bound/2-50 && left == fmt.Sprint(len(printed)-len(head)-len(tail)),
		"%s: %d bytes are kept, of which %d are tail, left %s: want %d", what, len(kept), len(tail), left, bound)
}

// keptOfBoth looks at a result of a run that printed the same on both streams.
func keptOfBoth(t *testing.T, what, printed string, r *chat.RunResult, bound int) {
	t.Helper()
	if r == nil || r.Exit != 0 || !r.Truncated {
		t.Errorf("%s: %+v", what, r)
		return
	}
	keptOf(t, what+", stdout", printed, r.Stdout, r.StdoutBytes, bound)
	keptOf(t, what+", stderr", printed, r.Stderr, r.StderrBytes, bound)
}

// TestOutputMax: of a run that prints three times what it may keep on both streams, head and tail
// of the size that it asked for are there and the total is reported: waited for, in the background,
// after kill -9 of chatd before and behind what it printed, and when it is followed. A run whose caller
// the kill cuts off ends.
func TestOutputMax(t *testing.T) {
	for _, size := range []int{4 << 10, chat.MaxOutputMax} {
		t.Run(fmt.Sprint(size), func(t *testing.T) { outputMax(t, size) })
	}
}

func outputMax(t *testing.T, size int) {
	opt := attackOptions(t)
	d := startDaemon(t, opt, "")
	c := must.First(d.Create(t.Context(), chat.Spec{ExternalID: "output max"}))(t)
	printed, n := numbers(3 * size)
	prints := fmt.Sprintf("seq %d; seq %d >&2", n, n)
	spec := chat.RunSpec{Command: prints, OutputMax: int64(size)}

	r := must.Get(d.Run(t.Context(), c.ID, spec))(t)
	keptOfBoth(t, "waited for", printed, &r, size)

	cli := newCLIRun(opt, nil, "run", string(c.ID), "--json", "--output-max", fmt.Sprintf("%dKiB", size>>10), "-c", prints)
	must.Do(t, cli.Run())
	out, _ := cli.text()
	must.Do(t, json.Unmarshal([]byte(out), &r))
	keptOfBoth(t, "chatd run --json", printed, &r, size)

	before := must.Get(d.StartRun(t.Context(), c.ID, spec))(t)
	shown := awaitRun(t, d, c.ID, before.ID)
	keptOfBoth(t, "background", printed, shown.Result, size)
	expect.Equal(t, shown.OutputMax, int64(size), "it is shown to keep")
	spec.Command = "sleep 1; " + prints
	after := must.Get(d.StartRun(t.Context(), c.ID, spec))(t)
	foreground := newCLIRun(opt, nil, "run", string(c.ID), "-c", "echo ready; exec sleep 4321")
	must.Do(t, foreground.Start())
	foreground.await(t, "ready")
	d.kill()
	_ = foreground.Wait()
	until(t, "the runs end without chatd", func() bool { return len(supervisors(t)) == 0 })
	d = startDaemon(t, opt, "")
	leaves := runLeaves(opt)
	expect.True(t, len(leaves) == 0, "the run of a caller who was cut off is left: %v", leaves)
	keptOfBoth(t, "ended before the kill", printed, awaitRun(t, d, c.ID, before.ID).Result, size)
	keptOfBoth(t, "printed after the kill", printed, awaitRun(t, d, c.ID, after.ID).Result, size)
	followed(t, d, opt, c.ID, after.ID, printed, size)
}

// followed reads a run that has ended from its beginning: the two halves, byte by byte, and how
// much lies between them.
func followed(t *testing.T, d *daemon, opt provision.Options, id chat.ID, run, printed string, size int) {
	t.Helper()
	want := printed[:size/2] + printed[len(printed)-size/2:]
	got, missing := map[string]string{}, map[string]int64{}
	res, err := d.FollowRun(t.Context(), id, run, "", func(f chat.Frame) {
		got[f.Stream] += string(f.Bytes())
		missing[f.Stream] += f.Missing
	})
	expect.True(t, err == nil && res.Truncated && res.StdoutBytes == int64(len(printed)),
		"followed: %+v, %v", res, err)
	for _, stream := range []string{chat.Stdout, chat.Stderr} {
		if got[stream] != want || missing[stream] != int64(len(printed)-size) {
			t.Errorf("followed, %s: %d bytes, %d missing, want %d and %d", stream, len(got[stream]), missing[stream], size, len(printed)-size)
		}
	}
	cli := newCLIRun(opt, nil, "runs", string(id), run, "-f")
	must.Do(t, cli.Run())
	out, errs := cli.text()
	if said := fmt.Sprintf("chatd: %d bytes of stdout are left out here", len(printed)-size); out != want || !strings.Contains(errs, said) {
		t.Errorf("chatd runs -f: %d bytes, want %d and %q", len(out), len(want), said)
	}
}

// TestOutputMaxOfAllRuns: the kept output of a chat's current runs is bounded, whatever each asks
// for; a run that keeps none is admitted.
func TestOutputMaxOfAllRuns(t *testing.T) {
	m := open(t, attackOptions(t))
	c, other := create(t, m, "much", "default"), create(t, m, "other", "default")
	ctx := operator(t.Context())
	much := chat.RunSpec{Argv: []string{"sleep", "1000"}, OutputMax: chat.MaxOutputMax}
	var last chat.Run
	for range chat.MaxRunsOutput / (2 * chat.MaxOutputMax) {
		last = startRun(t, m, c.ID, much)
	}
	for _, more := range []chat.RunSpec{{Command: "true"}, {Command: "true", OutputMax: chat.MinOutputMax}} {
		_, err := m.StartRun(ctx, c.ID, more)
		expect.Says(t, err, chat.ErrBusy, "want at most 134217728", "one more in the background")
		if _, err = m.Run(ctx, c.ID, more); !errors.Is(err, chat.ErrBusy) {
			t.Errorf("one more that is waited for: %v", err)
		}
	}
	if r, err := m.RunTo(ctx, c.ID, chat.RunSpec{Command: "echo streamed"}, func(string, []byte) {}); err != nil || r.StdoutBytes != 9 {
		t.Errorf("one that keeps nothing: %+v, %v", r, err)
	}
	run(t, m, other.ID, "true")
	must.Do(t, m.EndRun(ctx, c.ID, last.ID))
	run(t, m, c.ID, "true")
	expect.Is(t, expect.Err(m.RunTo(ctx, c.ID, chat.RunSpec{Command: "true", OutputMax: chat.MaxOutputMax}, func(string, []byte) {})), chat.ErrInvalid,
		"streamed, with output_max")
}

// TestOutputMaxKept: of runs that have ended counts what they keep, not what they printed.
func TestOutputMaxKept(t *testing.T) {
	m := open(t, attackOptions(t))
	c := create(t, m, "kept", "default")
	// fullByDefault is in runs, with one stream of each.
	const fullByDefault = chat.MaxRetainedOutput/chat.DefaultOutputMax + 1
	prints := func(bytes int, keeps int64) string {
		r := startRun(t, m, c.ID, chat.RunSpec{Command: fmt.Sprintf("head -c %d /dev/zero | tee /dev/stderr", bytes), OutputMax: keeps})
		awaitRun(t, m, c.ID, r.ID)
		return r.ID
	}
	gone := func(run string) bool {
		_, err := m.ShowRun(operator(t.Context()), c.ID, run)
		return errors.Is(err, chat.ErrNotFound)
	}
	var small []string
	for range fullByDefault {
		small = append(small, prints(chat.DefaultOutputMax+1, chat.MinOutputMax))
	}
	for _, run := range small {
		expect.True(t, !gone(run), "run %s, which keeps 2 KiB, is gone", run)
	}
	var large []string
	for range chat.MaxRetainedOutput/(2*chat.MaxOutputMax) + 1 {
		large = append(large, prints(chat.MaxOutputMax+1, chat.MaxOutputMax))
	}
	comes(func() bool { return gone(large[0]) }) // the oldest go once the last one's end is known
	expect.True(t, gone(large[0]) && gone(small[0]) && !gone(large[1]) && !gone(large[2]),
		"of more than a chat may keep an older run is kept, or a newer one is gone")
}

// TestOutputMaxMemory: to answer with what JSON makes six times as long costs chatd-root and the
// front each what is kept, and its text.
func TestOutputMaxMemory(t *testing.T) {
	opt := attackOptions(t)
	d := startDaemon(t, opt, "")
	c := must.First(d.Create(t.Context(), chat.Spec{ExternalID: "memory"}))(t)
	spec := chat.RunSpec{Command: fmt.Sprintf("head -c %d /dev/zero | tee /dev/stderr", chat.MaxOutputMax), OutputMax: chat.MaxOutputMax}
	front := frontOf(t, d.cmd.Process.Pid)
	before, frontBefore := highWater(d.cmd.Process.Pid), highWater(front)
	r, err := d.Run(t.Context(), c.ID, spec)
	must.True(t, err == nil && !r.Truncated && len(r.Stdout)+len(r.Stderr) == 2*chat.MaxOutputMax,
		"%d and %d bytes, %v", len(r.Stdout), len(r.Stderr), err)
	for name, more := range map[string]int64{"chatd-root": highWater(d.cmd.Process.Pid) - before, "the front": highWater(front) - frontBefore} {
		t.Logf("%s had %d MiB more", name, more>>20)
		if more > 8*chat.MaxOutputMax+16<<20 {
			t.Errorf("%s had %d MiB more", name, more>>20)
		}
	}
}

// TestRunWithoutASizeIsForgotten: a run whose record has no size, or one that chatd never wrote, is none.
func TestRunWithoutASizeIsForgotten(t *testing.T) {
	opt := attackOptions(t)
	m := must.Get(openManager(t.Context(), opt))(t)
	c := create(t, m, "sizes", "default")
	ended := func() (run, dir string) {
		r := startRun(t, m, c.ID, chat.RunSpec{Command: "true", OutputMax: 4 << 10})
		awaitRun(t, m, c.ID, r.ID)
		return r.ID, filepath.Join(opt.Run, "runs", string(c.ID), r.ID)
	}
	right, _ := ended()
	none, noneDir := ended()
	odd, oddDir := ended()
	negative, negativeDir := ended()
	must.Do(t, m.Close())
	setMax(t, noneDir, nil)
	setMax(t, oddDir, int64(1)<<50)
	setMax(t, negativeDir, int64(-1))
	m = open(t, opt)
	must.Get(m.ShowRun(operator(t.Context()), c.ID, right))(t)
	for _, run := range []string{none, odd, negative} {
		expect.Is(t, expect.Err(m.ShowRun(operator(t.Context()), c.ID, run)), chat.ErrNotFound,
			"a run with a note that no chatd wrote")
	}
}

// setMax writes another output_max into the record of a run; nil takes it out.
func setMax(t *testing.T, dir string, max any) {
	t.Helper()
	name := filepath.Join(dir, "run.json")
	text := must.Get(os.ReadFile(name))(t)
	var saved map[string]any
	must.Do(t, json.Unmarshal(text, &saved))
	info := saved["run"].(map[string]any)
	must.True(t, info["output_max"] != nil, "the note has no output_max: %s", text)
	if info["output_max"] = max; max == nil {
		delete(info, "output_max")
	}
	text = must.Get(json.Marshal(saved))(t)
	must.Do(t, os.WriteFile(name, text, 0o600))
}
