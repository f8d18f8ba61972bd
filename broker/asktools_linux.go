package broker

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/files"
	"github.com/chatd/chatd/sys"
)

var (
	fileTool = by("file_tool", func(ctx context.Context, c *call, u files.Use) (nothing, error) {
		return nothing{}, c.root.FileTool(ctx, c.Chat, u, c.talk)
	})
	share = by("share", func(ctx context.Context, c *call, s chat.Share) (nothing, error) {
		return nothing{}, c.root.ShareFile(ctx, c.Chat, s, c.talk)
	})

	toolVerbs = verbs{fileTool, share}
)

// FileTool is [FileTools].
func (c *Client) FileTool(ctx context.Context, id chat.ID, u files.Use, talk files.Talk) error {
	return talking(ctx, c, fileTool, id, u, talk)
}

// ShareFile is [FileTools].
func (c *Client) ShareFile(ctx context.Context, id chat.ID, s chat.Share, talk files.Talk) error {
	return talking(ctx, c, share, id, s, talk)
}

// talking makes a call and has talk speak with its file tools.
func talking[A any](
	ctx context.Context, c *Client, v verb[A, nothing], id chat.ID, a A, talk files.Talk,
) error {
	within, cancel := context.WithCancel(ctx)
	t := &talks{ctx: within, talk: talk}
	_, err := v.askWith(ctx, c, id, a, hooks{talks: t})
	cancel()
	t.done.Wait()
	return err
}

// talks is the front's end of a call's file tools. A goroutine speaks with each tool.
type talks struct {
	ctx  context.Context
	talk files.Talk
	done sync.WaitGroup
	all  [maxTools]*talk // used only by the call's reader

	saying sync.Mutex // keeps a message's parts together
}

// talk is one file tool of a call.
type talk struct {
	n       int
	link    *link
	of      *talks
	ctx     context.Context
	stop    context.CancelFunc
	replies chan bool // whether its question is denied
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
	one := &talk{n: s.N, link: l, of: t, replies: make(chan bool, 1)}
	one.ctx, one.stop = context.WithCancel(t.ctx)
	t.all[s.N] = one
	started := files.LiveTool{
		Tool: s.Tool, Max: s.Max, Check: one.check, Linked: one.linked,
		In: os.NewFile(uintptr(fds[0]), "input"), Out: os.NewFile(uintptr(fds[1]), "output"),
	}
	t.done.Go(func() {
		defer one.stop()
		a, err := t.talk(one.ctx, started)
		if one.ctx.Err() == nil { // otherwise the call or the tool has ended
			_ = one.say(toolMessage{Report: report(a, err)})
		}
	})
	return nil
}

// receive handles a reply, or the end of a tool.
func (t *talks) receive(k kind, p []byte) error {
	var m toolVerdict
	if err := decode(p, &m); err != nil {
		return err
	}
	if m.N < 0 || m.N >= maxTools || t.all[m.N] == nil {
		return fmt.Errorf("cannot use a reply about tool %d: there is none", m.N)
	}
	one := t.all[m.N]
	if k == toolStop {
		one.stop()
		return nil
	}
	select {
	case one.replies <- m.Denied:
		return nil
	default:
		return errors.New("cannot use a reply: nothing was asked")
	}
}

// say sends chatd-root a message about the tool.
func (t *talk) say(m toolMessage) error {
	m.N = t.n
	p, err := encode(m)
	if err != nil {
		return err
	}
	t.of.saying.Lock()
	defer t.of.saying.Unlock()
	return t.link.sendAll(toolPart, toolSays, p)
}

// check asks chatd-root. Without a reply the call is over, and check denies.
func (t *talk) check(op files.Op, path string) *files.Denial {
	denied := &files.Denial{Op: op, Path: path, Rule: files.RuleAsked}
	if t.say(toolMessage{Ask: &toolQuestion{op, path}}) != nil {
		return denied
	}
	select {
	case no := <-t.replies:
		if !no {
			return nil
		}
	case <-t.ctx.Done():
	}
	return denied
}

// linked reports the links to chatd-root, which may end the tool because of them.
func (t *talk) linked(all []files.Link) error { return t.say(toolMessage{Links: all}) }
