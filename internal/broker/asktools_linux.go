package broker

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/filewire"
	"github.com/chatd/chatd/internal/sys"
	"github.com/chatd/chatd/internal/verbs"
)

var (
	fileTool = verb("file_tool",
		func(c *call, ctx context.Context, id chat.ID, u filewire.Use) (none, error) {
			return none{}, c.FileTool(ctx, id, u, c.talk)
		})
	share = verb("share", func(c *call, ctx context.Context, id chat.ID, s chat.Share) (none, error) {
		return none{}, c.ShareFile(ctx, id, s, c.talk)
	})
)

func (c *Client) FileTool(ctx context.Context, id chat.ID, u filewire.Use, talk filewire.Talk) error {
	return talking(ctx, c, fileTool, id, u, talk)
}

func (c *Client) ShareFile(ctx context.Context, id chat.ID, s chat.Share, talk filewire.Talk) error {
	return talking(ctx, c, share, id, s, talk)
}

// talking makes a call and has talk speak with its file tools.
func talking[A any](
	ctx context.Context, c *Client, v verbs.Verb[A, none], id chat.ID, a A, talk filewire.Talk,
) error {
	within, cancel := context.WithCancel(ctx)
	t := &talks{ctx: within, talk: talk}
	_, err := callWith(ctx, c, v, id, a, hooks{talks: t})
	cancel()
	t.done.Wait()
	return err
}

// talks is the front's end of a call's file tools. A goroutine speaks with each tool.
type talks struct {
	ctx  context.Context
	talk filewire.Talk
	done sync.WaitGroup
	all  [maxTools]*talk // used only by the call's reader

	saying sync.Mutex // keeps a message's parts together
}

// talk is one file tool of a call.
type talk struct {
	n    int
	link *link
	of   *talks
	ctx  context.Context
	stop context.CancelFunc
}

// begin starts speaking with a tool. Deadlines can cancel its reads and writes.
func (t *talks) begin(l *link, p []byte, fds [2]int) error {
	var s startedTool
	err := decode(p, &s)
	if err == nil && (s.N < 0 || s.N >= maxTools || t.all[s.N] != nil) {
		err = fmt.Errorf("cannot use a tool as number %d", s.N)
	}
	for _, fd := range fds {
		if err == nil {
			err = unix.SetNonblock(fd, true)
		}
	}
	if err != nil {
		return errors.Join(fmt.Errorf("cannot speak with a file tool: %w", err), sys.CloseAll(fds[:]))
	}
	one := &talk{n: s.N, link: l, of: t}
	one.ctx, one.stop = context.WithCancel(t.ctx)
	t.all[s.N] = one
	started := filewire.LiveTool{
		Tool: s.Tool, Max: s.Max,
		In: os.NewFile(uintptr(fds[0]), "input"), Out: os.NewFile(uintptr(fds[1]), "output"),
	}
	t.done.Go(func() {
		defer one.stop()
		a, err := t.talk(one.ctx, started)
		if one.ctx.Err() == nil { // otherwise the call or the tool has ended
			_ = one.say(report(a, err))
		}
	})
	return nil
}

// receive handles the end of a tool.
func (t *talks) receive(p []byte) error {
	var m toolEnded
	if err := decode(p, &m); err != nil {
		return err
	}
	if m.N < 0 || m.N >= maxTools || t.all[m.N] == nil {
		return fmt.Errorf("cannot use the end of tool %d: there is none", m.N)
	}
	t.all[m.N].stop()
	return nil
}

// say reports to chatd-root how the tool ended.
func (t *talk) say(r *toolReport) error {
	p, err := encode(toolMessage{t.n, r})
	if err != nil {
		return err
	}
	t.of.saying.Lock()
	defer t.of.saying.Unlock()
	return t.link.sendAll(toolPart, toolSays, p)
}
