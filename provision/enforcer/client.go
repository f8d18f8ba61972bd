package enforcer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/orders"
)

// Options is everything that a [Client] needs to know.
type Options struct {
	// Dir is the directory of the enforcer's socket and records.
	Dir string
	// Program is the chatd-enforce binary, which [Client.Start] starts if no enforcer answers.
	Program string
	// Unit: the enforcer is systemd's chatd-keeper.service, and Start waits for it. A process that
	// chatd's own service starts may not mount, and ends with the service.
	Unit bool
	Log  *slog.Logger
	// Report is told of an enforcer that was killed because it did not answer, and nil each time that
	// one answers.
	Report func(error)
}

// Client is chatd-root's side of the enforcer of one directory. Its methods are safe for
// concurrent use.
type Client struct {
	opt      Options
	starting chan struct{} // has an element while the enforcer is looked for or started
	started  chan struct{} // tells Follow that an enforcer answers
	refused  refusals
	silent   atomic.Pointer[time.Time] // when look last got no answer in time
}

// New returns a client. It does nothing before its methods are called.
func New(opt Options) *Client {
	return &Client{
		opt: opt, starting: make(chan struct{}, 1), started: make(chan struct{}, 1),
		refused: refusals{now: time.Now, chats: map[chat.ID]*refusedOf{}},
	}
}

// Session names a session of a chat by its init process (proc(5), field 22).
type Session struct {
	Chat  chat.ID
	PID   int
	Start uint64
}

func (s Session) order(verb string) orders.Order {
	return orders.Order{Verb: verb, Chat: s.Chat, PID: s.PID, Start: s.Start}
}

// Rules are compiled file rules, and the chat that they are for.
type Rules struct {
	UID         uint32
	Home, Agent string
	Compiled    []byte
}

// ApplyRules makes the enforcer apply the rules in a session, or replace those that it has. If a worker
// of the enforcer ends meanwhile, ApplyRules asks the next one. It asks only once more: the order may
// have ended the first worker.
func (c *Client) ApplyRules(ctx context.Context, s Session, r Rules) (err error) {
	order := s.order(orders.Apply)
	order.UID, order.Home, order.Agent, order.Rules = r.UID, r.Home, r.Agent, r.Compiled
	for range 2 {
		if err = c.Start(ctx); err != nil {
			return err
		}
		began := time.Now()
		var a orders.Answer
		if a, err = c.ask(ctx, order); err == nil {
			c.opt.Log.Debug("file rules", "chat", s.Chat, "masks", a.Masks, "read_only", a.ReadOnly,
				"exceptions", a.Exceptions, "looked", a.Looked, "took", time.Since(began))
		}
		if !errors.Is(err, ErrEnded) {
			break
		}
	}
	return err
}

// Keeps reports whether the enforcer enforces rules in a session or, for the zero Session, whether
// one answers. It waits as [Client.Layer] does.
func (c *Client) Keeps(ctx context.Context, s Session) bool {
	_, err := c.look(ctx, s)
	return err == nil
}

// look is probe for those that only want to know: of those that look at many sessions, one waits
// for an enforcer that does not answer.
func (c *Client) look(ctx context.Context, s Session) (a orders.Answer, err error) {
	if at := c.silent.Load(); at != nil && time.Since(*at) <= 2*whyTimeout {
		return a, fmt.Errorf("it does not answer: %w", chat.ErrBusy)
	}
	ctx, cancel := context.WithTimeout(ctx, whyTimeout)
	defer cancel()
	a, err = c.probe(ctx, s)
	if ctx.Err() != nil {
		c.silent.Store(new(time.Now()))
	}
	return a, err
}

// Layer adds to the layer view how file rules are enforced in a session now. In it bubblewrap masks
// this many denied paths.
func (c *Client) Layer(ctx context.Context, s Session, l chat.Layer, masked int) chat.Layer {
	if masked > 0 {
		l.Probe += fmt.Sprintf("; file rules: bubblewrap masks %d denied paths", masked)
	}
	a, err := c.look(ctx, s)
	if err != nil {
		l.State = chat.LayerWeaker
		l.Fix = "start the enforcer of file rules: systemctl start chatd-keeper"
		l.Probe += "; file rules: nobody checks files made later: " + err.Error()
		return l
	}
	l.By += ", chatd-enforce"
	l.Probe += fmt.Sprintf("; file rules: %d closed, %d read-only, %d open inside, "+
		"files made later by %s", a.Masks, a.ReadOnly, a.Exceptions, a.Later)
	return l
}

// probe reports what is mounted in a session whose rules are enforced. For the zero Session it
// reports whether an enforcer answers. If a worker of the enforcer ends meanwhile, probe asks the
// next one, which the holder starts: no second enforcer is needed.
func (c *Client) probe(ctx context.Context, s Session) (a orders.Answer, err error) {
	for range 3 {
		a, err = c.ask(ctx, s.order(orders.Probe))
		if !errors.Is(err, ErrEnded) {
			break
		}
	}
	return a, err
}

// Drop tells the enforcer that the chat's session has ended. An enforcer that does not answer
// finds that out by itself.
func (c *Client) Drop(ctx context.Context, id chat.ID) error {
	_, err := c.ask(ctx, Session{Chat: id}.order(orders.Drop))
	if errors.Is(err, chat.ErrUnsupported) || errors.Is(err, ErrEnded) {
		return nil
	}
	return err
}

// whyTimeout bounds the answer to a question that a refused caller waits for.
const whyTimeout = 5 * time.Second

// Why returns the denied name that closes a path in a session: the path's own or another name of
// the same file. It is empty if no rule closes the path.
func (c *Client) Why(ctx context.Context, s Session, name string) (by string, err error) {
	ctx, cancel := context.WithTimeout(ctx, whyTimeout)
	defer cancel()
	order := s.order(orders.Why)
	order.Path = []byte(name)
	a, err := c.ask(ctx, order)
	return string(a.By), err
}

// ErrEnded means that the enforcer's worker ended before it answered. The next worker resumes its
// sessions, and may be asked again.
var ErrEnded = fmt.Errorf("it ended before it answered: %w", chat.ErrBusy)

// ask sends one order to the enforcer's socket and waits for the answer. A refused order is an
// error, and so is a worker that ends before it answers ([ErrEnded]). Where no enforcer listens
// the error is a [chat.ErrUnsupported].
func (c *Client) ask(ctx context.Context, order orders.Order) (a orders.Answer, err error) {
	ctx, cancel := context.WithTimeout(ctx, orders.Timeout)
	defer cancel()
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", filepath.Join(c.opt.Dir, orders.Socket))
	if err != nil {
		err = fmt.Errorf("%w: %w", err, chat.ErrUnsupported)
		return a, fmt.Errorf("cannot ask the enforcer of file rules: %w", err)
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Now()) })
	defer stop()
	if err := json.NewEncoder(conn).Encode(order); err != nil {
		return a, fmt.Errorf("cannot ask the enforcer of file rules: %w", orEnded(err))
	}
	if err := json.NewDecoder(io.LimitReader(conn, orders.MaxAnswer)).Decode(&a); err != nil {
		err = fmt.Errorf("cannot read the answer of the enforcer of file rules: %w", orEnded(err))
		return orders.Answer{}, err
	}
	if a.Error != "" {
		return a, fmt.Errorf("cannot keep the file rules of chat %s: %s", order.Chat, a.Error)
	}
	return a, nil
}

// orEnded adds [ErrEnded] to the errors of a connection that the other end closed.
func orEnded(err error) error {
	for _, end := range []error{io.EOF, io.ErrUnexpectedEOF, syscall.ECONNRESET, syscall.EPIPE} {
		if errors.Is(err, end) {
			return fmt.Errorf("%w: %w", ErrEnded, err)
		}
	}
	return err
}
