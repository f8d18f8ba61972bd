package egress

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/quota"
	"github.com/chatd/chatd/internal/uplink"
)

const (
	// acceptPause is how long an accept(2) that failed is not tried again: descriptors may be
	// exhausted, and come back.
	acceptPause = 100 * time.Millisecond
	// sweepEvery is how often idle connections and flows are looked for.
	sweepEvery = 15 * time.Second
	// descriptorsEach is how many descriptors a connection needs at most: two sockets, the pipes of
	// splice(2) for both directions, and two while it is made.
	descriptorsEach = 8
	// descriptorsKept are not given to connections: those of the chats' listeners and of messages.
	descriptorsKept = 2048
	// memorySlots is how many connections and flows fit into memory beside the sessions of HTTP:
	// each takes some 20 KiB (TestAwakeMemory).
	memorySlots = 16 << 10
)

// Options are those of [Serve].
type Options struct {
	// Listener is the SOCK_SEQPACKET socket that chatd-root connects to.
	Listener *net.UnixListener
	// Root is the uid of the peers that may connect.
	Root uint32
	Log  *slog.Logger
	// IdleEnd ends Serve after so long without a chatd-root and without a chat; zero is never.
	IdleEnd time.Duration
	// Roots are the authorities by which the servers of secrets are known, until chatd-root sends
	// others. They are loaded before [Confine]: after it no file can be read.
	Roots *x509.CertPool
}

// server is what all chats share.
type server struct {
	log   *slog.Logger
	tally *tally
	told  func(Event) // gets each event too, from several goroutines; nil but in tests
	root  root
	web   *web

	reporting  sync.Mutex // held while a report is made
	unanswered report     // of which chatd-root may have heard; of reporting

	terminator *terminator
	secrets    secrets

	// buffers are for datagrams and first bytes: *[maxDatagram]byte. Nothing idle holds one.
	buffers   sync.Pool
	slots     budget // connections and flows
	waiting   budget // questions
	mu        sync.Mutex
	fresh     func() *quota.Allowance // how fast a chat may begin connections, or flows
	upstreams []netip.AddrPort
	networks  map[chat.ID]*network
	owners    map[string]*owner
}

// Serve carries for the chats that chatd-root opens, until ctx ends or the listener fails. When it
// returns every connection has ended.
func Serve(ctx context.Context, o Options) error { return newServer(o).run(ctx, o) }

func (s *server) run(ctx context.Context, o Options) error {
	ctx, cancel := context.WithCancel(ctx)
	var all sync.WaitGroup
	all.Go(func() { s.web.serve(ctx) })
	all.Go(func() { s.terminator.serve(ctx) })
	all.Go(func() { chat.Every(ctx, sweepEvery, func() { s.sweep(time.Now()) }) })
	all.Go(func() { chat.Every(ctx, reportEvery, func() { s.report(ctx, "") }) })
	if o.IdleEnd > 0 {
		all.Go(func() { s.endIdle(ctx, o.IdleEnd, cancel) })
	}
	stop := context.AfterFunc(ctx, func() { _ = o.Listener.Close() })
	err := s.acceptRoot(ctx, o)
	stop()
	cancel()
	err = errors.Join(err, s.closeAll())
	all.Wait()
	return err
}

func newServer(o Options) *server {
	s := &server{
		log: o.Log, tally: newTally(time.Now), networks: map[chat.ID]*network{},
		owners:  map[string]*owner{},
		root:    root{timeout: rootTimeout, changed: make(chan struct{})},
		buffers: sync.Pool{New: func() any { return new([maxDatagram]byte) }},
	}
	s.fresh = func() *quota.Allowance { return quota.NewAllowance(maxFresh, freshEvery, time.Now) }
	s.web, s.terminator = newWeb(s), newTerminator(s, o.Roots)
	s.slots.left, s.waiting.left = min(descriptorSlots(), memorySlots), maxQuestions
	return s
}

// endIdle calls end when nobody has needed this process for so long.
func (s *server) endIdle(ctx context.Context, after time.Duration, end func()) {
	tick := time.NewTicker(after / 2)
	defer tick.Stop()
	for idle := 0; idle < 2; {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		idle++
		if c, _ := s.root.current(); c != nil || s.chats() > 0 {
			idle = 0
		}
	}
	end()
}

func (s *server) chats() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.networks)
}

// descriptorSlots is how many connections the limit of descriptors allows (getrlimit(2)). Where
// they are exhausted, chatd-root's messages lose theirs: no chat may bring that about.
func descriptorSlots() int64 {
	var r unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &r); err != nil {
		return 1
	}
	free := min(int64(r.Cur), 1<<24)
	return max(free-descriptorsKept, free/2) / descriptorsEach
}

// acceptRoot accepts connections of chatd-root. A newer one replaces the older one, whose calls
// have ended before.
func (s *server) acceptRoot(ctx context.Context, o Options) error {
	end, ended := func() {}, make(chan struct{})
	close(ended)
	defer func() { end(); <-ended }()
	for {
		c, err := o.accept()
		switch {
		case ctx.Err() != nil:
			if c != nil {
				_ = c.Close()
			}
			return nil
		case errors.Is(err, net.ErrClosed):
			return err
		case err != nil:
			s.log.Warn("a connection was refused", "error", err)
			pause(ctx)
			continue
		}
		end()
		<-ended
		end, ended = func() { _ = c.Close() }, make(chan struct{})
		go func(ended chan struct{}) {
			defer close(ended)
			s.serveRoot(ctx, c)
		}(ended)
	}
}

// accept returns the next connection of chatd-root (SO_PEERCRED of unix(7)).
func (o Options) accept() (*uplink.Conn, error) {
	u, err := o.Listener.AcceptUnix()
	if err != nil {
		return nil, fmt.Errorf("cannot accept chatd-root: %w", err)
	}
	defer u.Close()
	raw, err := u.SyscallConn()
	if err != nil {
		return nil, err
	}
	var cred *unix.Ucred
	var credErr error
	err = raw.Control(func(fd uintptr) {
		cred, credErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	})
	if err = errors.Join(err, credErr); err != nil {
		return nil, fmt.Errorf("cannot tell the peer: %w", err)
	}
	if cred.Uid != o.Root {
		return nil, fmt.Errorf("cannot serve uid %d: want %d: %w", cred.Uid, o.Root, chat.ErrDenied)
	}
	f, err := u.File()
	if err != nil {
		return nil, fmt.Errorf("cannot use the connection: %w", err)
	}
	return uplink.New(f)
}

// serveRoot answers one chatd-root until it ends.
func (s *server) serveRoot(ctx context.Context, c *uplink.Conn) {
	defer s.root.unset(c)
	handle := func(_ context.Context, call uplink.Call, files []*os.File) ([]*os.File,
		uplink.Answer) {
		a, err := s.answer(c, call, files)
		if err != nil {
			s.log.Warn("a call of chatd-root failed",
				"verb", call.Verb, "chat", call.Chat, "error", err)
			a = uplink.Answer{Error: text(err)}
		}
		return nil, a
	}
	if err := c.Serve(ctx, handle); err != nil {
		s.log.Error("the connection to chatd-root has ended", "error", err)
	}
}

// answer answers a call of chatd-root.
func (s *server) answer(c *uplink.Conn, call uplink.Call, files []*os.File) (a uplink.Answer, err error) {
	if call.Verb != uplink.Hello && !s.root.is(c) {
		err = fmt.Errorf("cannot answer %s before %s", call.Verb, uplink.Hello)
		return a, errors.Join(err, uplink.CloseFiles(files))
	}
	switch call.Verb {
	case uplink.Open:
		return a, s.open(call, files)
	case uplink.Secrets:
		return a, s.setSecrets(files)
	}
	if err := uplink.CloseFiles(files); err != nil {
		return a, fmt.Errorf("cannot close what came with %s: %w", call.Verb, err)
	}
	switch call.Verb {
	case uplink.Hello:
		a.Chats = s.hello(c, call.Upstreams)
	case uplink.Change:
		s.grant(call.Chat, call.Grants)
		err = s.change(call.Chat, call.Allow)
	case uplink.Connections:
		open := s.connections(call.Chat)
		a.Open = &open
	case uplink.Resolve:
		err = s.resolve(call)
	case uplink.Close:
		err = s.close(call.Chat)
		s.report(context.Background(), call.Chat) // chatd-root hears nothing of it once it is closed
	default:
		err = fmt.Errorf("cannot answer %s", chat.Quote(string(call.Verb)))
	}
	return a, err
}

// hello makes c the connection that sockets are asked over, and returns the open chats.
func (s *server) hello(c *uplink.Conn, upstreams []netip.AddrPort) []chat.ID {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !slices.Equal(s.upstreams, upstreams) {
		s.upstreams = slices.Clone(upstreams)
		for _, n := range s.networks {
			n.resolveWith(len(upstreams))
		}
	}
	var open []chat.ID
	for id := range s.networks {
		open = append(open, id)
	}
	slices.Sort(open)
	s.root.set(c)
	s.tally.unheardAll()
	return open
}

// pause waits before the next try of what failed.
func pause(ctx context.Context) {
	_ = chat.Sleep(ctx, acceptPause)
}
