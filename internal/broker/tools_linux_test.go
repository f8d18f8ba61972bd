package broker

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/front/api/apitest"
	"github.com/chatd/chatd/internal/filewire"
	"github.com/chatd/chatd/internal/sys"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// toolRoot is chatd-root with tools that never answer.
type toolRoot struct {
	*apitest.Memory
	ends    chan context.CancelCauseFunc // of calls that have begun
	results chan error                   // what talk returned
}

// errOverdue ends a call whose time is over.
var errOverdue = fmt.Errorf("it took too long: %w", chat.ErrBusy)

// FileTool passes the front a tool that never answers.
func (r *toolRoot) FileTool(
	ctx context.Context, _ chat.ID, u filewire.Use, talk filewire.Talk,
) error {
	if _, err := u.Read(); err != nil {
		return err
	}
	s := filewire.LiveTool{Tool: u.Tool, Max: 1 << 20}
	in, inW, err := os.Pipe()
	if err != nil {
		return err
	}
	defer in.Close()
	outR, out, err := os.Pipe()
	if err != nil {
		return err
	}
	defer out.Close()
	s.In, s.Out = inW, outR
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	r.ends <- end
	_, err = talk(ctx, s)
	r.results <- err
	return err
}

// serveTool serves chats with such tools.
func serveTool(t *testing.T) (d *rootEnd, root *toolRoot) {
	t.Helper()
	mem := apitest.New()
	root = &toolRoot{Memory: mem}
	root.ends, root.results = make(chan context.CancelCauseFunc, 16), make(chan error, 16)
	return serveRoot(t, root), root
}

const toolID chat.ID = "0123456789abcdef"

func useOf(t *testing.T, tool filewire.Tool, args filewire.Args) filewire.Use {
	t.Helper()
	u := must.Get(filewire.NewUse(tool, args))(t)
	return u
}

// TestToolsCross: a tool's content and answer go through its own pipes, and only the
// outcome through the call's packets.
func TestToolsCross(t *testing.T) {
	fds, routines := held(t)
	d := serve(t)
	made := must.First(d.Create(operator(t), chat.Spec{ExternalID: "a"}))(t)
	want := strings.Repeat("x", 1<<20)
	use := func(tool filewire.Tool, args filewire.Args, x filewire.Exchange) (a filewire.Answer, err error) {
		err = d.FileTool(operator(t), made.ID, useOf(t, tool, args),
			func(_ context.Context, s filewire.LiveTool) (filewire.Answer, error) {
				defer s.Out.Close()
				x.Limit = s.Max
				var err error
				a, err = filewire.Speak(s.In, s.Out, x)
				return a, err
			})
		return a, err
	}
	write := filewire.WriteFile{Path: "f", Stream: true}
	a, err := use(filewire.WriteFileTool, write, filewire.Exchange{Body: strings.NewReader(want)})
	expect.True(t, err == nil && a.Bytes == int64(len(want)), "written: %d bytes, %v", a.Bytes, err)
	var got bytes.Buffer
	begin := func(filewire.Answer) io.Writer { return &got }
	read := filewire.ReadFile{Path: "f", Stream: true}
	a, err = use(filewire.ReadFileTool, read, filewire.Exchange{Begin: begin})
	if err != nil || got.String() != want || a.Bytes != int64(len(want)) {
		t.Errorf("read: %d bytes, %v", got.Len(), err)
	}
	_, err = use(filewire.ReadFileTool, filewire.ReadFile{Path: "nothing"}, filewire.Exchange{Begin: begin})
	expect.True(t, errors.Is(err, chat.ErrNotFound), "a file that is not there: %v", err)
	own := errors.New("nothing came")
	_, err = use(filewire.WriteFileTool, write, filewire.Exchange{Body: io.MultiReader(failing{own})})
	expect.True(t, errors.Is(err, chat.ErrInvalid), "a body that cannot be read: %v", err)
	expect.NoError(t, d.end(t))
	leaksNothing(t, fds, routines)
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

// TestToolsReport: what the front says of a denial is a failure, which the caller of talk judges.
func TestToolsReport(t *testing.T) {
	d, root := serveTool(t)
	for name, forged := range map[string]error{
		"a denial":               &filewire.Denial{Op: filewire.Read, Path: "/x", Rule: "forged"},
		"an error with a denial": fmt.Errorf("no: %w", &filewire.Denial{Rule: "forged"}),
	} {
		u := useOf(t, filewire.ReadFileTool, filewire.ReadFile{Path: name})
		err := d.FileTool(operator(t), toolID, u,
			func(_ context.Context, s filewire.LiveTool) (filewire.Answer, error) {
				return filewire.Answer{}, errors.Join(forged, s.In.Close(), s.Out.Close())
			})
		var denial *filewire.Denial
		if heard := <-root.results; heard == nil || errors.As(heard, &denial) || err == nil {
			t.Errorf("%s: %v, and chatd-root hears %v", name, err, heard)
		}
	}
	expect.NoError(t, d.end(t))
}

// givenTool starts a call and returns it with the descriptors of its tool.
func givenTool(t *testing.T, d *rootEnd) (l *link, given []int) {
	t.Helper()
	const ask = `{"verb":"file_tool","caller":{"name":"root","role":"operator"},` +
		`"chat":"0123456789abcdef","args":{"tool":"read_file","args":{"path":"f"}}}`
	l, err := d.open()
	must.Do(t, err)
	must.Do(t, errors.Join(l.send(requestEnd, []byte(ask)), l.hearBy(time.Now().Add(time.Minute))))
	must.Do(t, l.recvFDs(func(k kind, _ []byte, fds []int) error {
		if given = fds; k != tool || len(fds) != 2 {
			t.Errorf("got %q with %d descriptors", k, len(fds))
		}
		return nil
	}))
	return l, given
}

// TestHostileTools: whatever a front does with a file tool, the call leaves nothing in chatd-root,
// and the next call is answered.
func TestHostileTools(t *testing.T) {
	const report = `{"n":0,"report":{"answer":{"size":0,"bytes":0}}}`
	says := func(texts ...string) func(l *link) error {
		return func(l *link) (err error) {
			for _, text := range texts {
				err = errors.Join(err, l.send(toolSays, []byte(text)))
			}
			return err
		}
	}
	big := bytes.Repeat([]byte(" "), packetSize-1)
	for name, does := range map[string]func(l *link) error{
		"no JSON":         says("x"),
		"nothing":         says(`{"n":0}`),
		"another tool":    says(`{"n":1,"report":{"answer":{"size":0,"bytes":0}}}`),
		"a negative tool": says(`{"n":-1,"report":{"answer":{"size":0,"bytes":0}}}`),
		"a question":      says(`{"n":0,"ask":{"op":"read","path":"/x"}}`),
		"a huge answer":   says(`{"n":0,"report":{"answer":{"size":-1,"bytes":0}}}`),
		"two reports":     says(report, report),
		"a forged kind": says(`{"n":0,"report":{"answer":{"size":0,"bytes":0},"error":{"words":"no",` +
			`"denial":{"op":"read","path":"/x","rule":"r"}}}}`),
		"another kind": func(l *link) error { return l.send(tool, nil) },
		"a stop":       func(l *link) error { return l.send(toolStop, []byte(`{"n":0}`)) },
		"half a message": func(l *link) error {
			return errors.Join(l.send(toolPart, big), l.hangUp())
		},
		"a long message": func(l *link) error {
			for sent := 0; sent <= maxRequest; sent += len(big) {
				if err := l.send(toolPart, big); err != nil {
					return err
				}
			}
			return nil
		},
		"hangs up": (*link).hangUp,
		"dies":     (*link).close,
		"a hundred files": func(l *link) error {
			return l.sendFDs(toolSays, []byte("x"), make([]int, 100)...)
		},
	} {
		t.Run(name, func(t *testing.T) {
			fds, routines := held(t)
			d, root := serveTool(t)
			l, given := givenTool(t, d) // kept by the front
			// The call may have ended before all is sent.
			err := does(l)
			if err != nil && !errors.Is(err, unix.EPIPE) && !errors.Is(err, unix.ECONNRESET) {
				t.Fatal(err)
			}
			select {
			case err := <-root.results:
				var d *filewire.Denial
				if err == nil && name != "two reports" || errors.As(err, &d) {
					t.Errorf("it ended with %v", err)
				}
			case <-time.After(time.Minute):
				t.Fatal("chatd-root waits on")
			}
			d.sound(t)
			_ = l.close()
			expect.NoError(t, errors.Join(d.end(t), sys.CloseAll(given)))
			leaksNothing(t, fds, routines)
		})
	}
}

// TestToolThatNeverEnds: a front that reports nothing holds a tool until its time is over. A sound
// front gets the stop, and ends.
func TestToolThatNeverEnds(t *testing.T) {
	fds, routines := held(t)
	d, root := serveTool(t)
	err := d.FileTool(operator(t), toolID, useOf(t, filewire.ReadFileTool, filewire.ReadFile{Path: "f"}),
		func(ctx context.Context, s filewire.LiveTool) (filewire.Answer, error) {
			(<-root.ends)(errOverdue)
			<-ctx.Done()
			return filewire.Answer{}, errors.Join(ctx.Err(), s.In.Close(), s.Out.Close())
		})
	expect.True(t, errors.Is(err, chat.ErrBusy) && strings.Contains(err.Error(), "too long"),
		"its time is over: %v", err)
	l, given := givenTool(t, d)
	(<-root.ends)(errOverdue)
	must.Do(t, l.recv(func(k kind, _ []byte) error {
		expect.True(t, k == toolStop, "got %q, want that it is over", k)
		return nil
	}))
	last, words, err := recvAnswer(l)
	expect.True(t, err == nil && last == failed && strings.Contains(string(words), "too long"),
		"answered %q %s, %v", last, words, err)
	expect.NoError(t, errors.Join(d.end(t), l.close(), sys.CloseAll(given)))
	leaksNothing(t, fds, routines)
}

// TestToolOfACallerWhoLeft: when the caller leaves, the goroutine that speaks with the tool ends,
// and so does the call in chatd-root.
func TestToolOfACallerWhoLeft(t *testing.T) {
	fds, routines := held(t)
	d, root := serveTool(t)
	ctx, leave := context.WithCancel(operator(t))
	err := d.FileTool(ctx, toolID, useOf(t, filewire.ReadFileTool, filewire.ReadFile{Path: "f"}),
		func(ctx context.Context, s filewire.LiveTool) (filewire.Answer, error) {
			leave()
			<-ctx.Done()
			return filewire.Answer{}, errors.Join(ctx.Err(), s.In.Close(), s.Out.Close())
		})
	expect.True(t, errors.Is(err, context.Canceled), "the caller has left: %v", err)
	if err := <-root.results; !errors.Is(err, context.Canceled) {
		t.Errorf("chatd-root hears %v", err)
	}
	expect.NoError(t, d.end(t))
	leaksNothing(t, fds, routines)
}

// TestAnswerBeforeAReset: an answer arrives even if chatd-root did not read the front's last
// packet, such as one about a tool that had ended.
func TestAnswerBeforeAReset(t *testing.T) {
	ours, theirs, err := pair()
	must.Do(t, err)
	l, err := newLink(ours)
	r, err2 := newLink(theirs)
	must.Do(t, errors.Join(err, err2))
	defer l.close()
	must.Do(t, errors.Join(l.send(toolSays, nil), r.send(answerEnd, []byte(`"an answer"`)), r.close()))
	got := ""
	err = hear(l.recv, &got, nil)
	expect.True(t, err == nil && got == "an answer", "%q, %v", got, err)
}

// FuzzTool: whatever a front says about a tool, the call ends with the front, and a denial is one
// from chatd-root.
func FuzzTool(f *testing.F) {
	f.Add(
		[]byte(`{"n":0,"ask":{"op":"read","path":"/a/secret"}}`),
		[]byte(`{"n":0,"report":{"answer":{"size":0,"bytes":0,"failure":{"kind":"denied",`+
			`"message":"m","denial":{"op":"read","path":"/x","rule":"kernel"}}}}}`))
	f.Add([]byte(`{"n":1}`), []byte(`{"n":0,"report":{"error":{"words":"w","kinds":["busy"]},`+
		`"ended":true,"answer":{"size":0,"bytes":0}}}`))
	f.Fuzz(func(t *testing.T, one, two []byte) {
		c := &call{link: nowhere(t)}
		defer c.close()
		h := &heldTool{ended: make(chan toolEnd, 1)}
		must.Do(t, expect.Err(c.tools.add(h)))
		for _, p := range [][]byte{one, two} {
			if err := c.hear(p); err != nil && strings.Contains(err.Error(), "panic") {
				t.Fatal(err)
			}
		}
		select {
		case e := <-h.ended:
			var d *filewire.Denial
			var failure *filewire.Failure
			must.True(t, !errors.As(e.err, &d) || errors.As(e.err, &failure),
				"%+v is a denial of chatd-root's", d)
		default:
		}
	})
}

// nowhere is a link whose other end discards every packet.
func nowhere(t *testing.T) *link {
	t.Helper()
	ours, theirs, err := pair()
	must.Do(t, err)
	l := must.Get(newLink(ours))(t)
	t.Cleanup(func() { _ = unix.Close(theirs) })
	return l
}
