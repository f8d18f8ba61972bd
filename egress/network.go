package egress

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"runtime"
	"sync"
	"time"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/egress/resolver"
	"github.com/chatd/chatd/internal/quota"
	"github.com/chatd/chatd/internal/secret"
	"github.com/chatd/chatd/internal/uplink"
)

const (
	maxConnections = 512 // of a chat over TCP
	maxFlows       = 128 // of a chat's datagrams
	maxConnecting  = 64  // connections of a chat until they are connected; more wait

	// maxQuestions is how many questions for names of all chats wait for their answers, some 12 KiB
	// each (TestQuestionsFlood). A chat asks freshQuestions immediately, and then one every questionEvery.
	// More are lost, and programs repeat them. No program asks so much: the bound is for the time of
	// the processor.
	maxQuestions                  = 4096
	freshQuestions, questionEvery = 2048, time.Millisecond

	// A chat begins this many connections immediately, and then one every freshEvery: each costs
	// chatd-root a socket, which no quota of the chat counts. More wait. So it is with flows, of
	// which more are lost.
	maxFresh   = 512
	freshEvery = 10 * time.Millisecond
)

// closeTimeout bounds how long the end of a chat, or of connections that a list no longer has, is
// waited for. It is less than chatd-root waits for an answer. Tests set it.
var closeTimeout = 2 * time.Second

// ends why connections end.
var (
	errClosed   = errors.New("the chat's network has ended")
	errUnlisted = errors.New("the profile no longer lists it")
	errIdle     = errors.New("idle for too long")
	errEvicted  = errors.New("the chat has too many flows of datagrams")
	errOver     = errors.New("over") // of what has ended by itself
)

// network is one chat's network, from which everything that leaves it comes here.
type network struct {
	s      *server
	id     chat.ID
	of     string // its owner
	owner  *owner
	book   *resolver.Book
	tcp    *net.TCPListener
	udp    *net.UDPConn
	ctx    context.Context
	cancel context.CancelCauseFunc
	all    sync.WaitGroup // every goroutine of the chat

	slots, web, waiting share
	connecting          chan struct{}
	sessions            chan struct{}    // of HTTP
	turned              chan struct{}    // answers of 503
	asks                *quota.Allowance // of receive
	connects            *quota.Allowance // of accept
	begins              *quota.Allowance // of receive
	redials             *quota.Allowance // of redial
	redialing           chan struct{}    // whose turn it is

	mu          sync.Mutex
	reports     *quota.Allowance // of open
	closed      bool
	list        []chat.Allow
	grants      []secret.Grant
	names       *resolver.Responder
	carried     map[*carried]bool
	connections int // of the chat's programs
	servers     int // that are connected to over TCP
	flows       map[flowKey]*flow
}

// open begins to carry for a chat. It closes files.
func (s *server) open(call uplink.Call, files []*os.File) error {
	if err := s.close(call.Chat); err != nil {
		return errors.Join(err, uplink.CloseFiles(files))
	}
	n, err := s.newNetwork(call, files)
	if err != nil {
		return fmt.Errorf("cannot open the network of chat %s: %w", call.Chat, err)
	}
	s.mu.Lock()
	_, twice := s.networks[call.Chat]
	if !twice {
		n.resolveWith(len(s.upstreams))
		s.networks[call.Chat] = n
		n.all.Go(n.accept)
		n.all.Go(n.receive)
	}
	s.mu.Unlock()
	if twice {
		err := fmt.Errorf("cannot open the network of chat %s twice: %w", call.Chat, chat.ErrBusy)
		return errors.Join(err, n.close())
	}
	return nil
}

func (s *server) newNetwork(call uplink.Call, files []*os.File) (n *network, err error) {
	if len(files) != 3 {
		err := fmt.Errorf("%d files: want a listener, a socket and the file of names", len(files))
		return nil, errors.Join(err, uplink.CloseFiles(files))
	}
	n = &network{
		s: s, id: call.Chat, of: call.Owner, owner: s.ownerOf(call.Owner),
		list: call.Allow, carried: map[*carried]bool{},
		flows:      map[flowKey]*flow{},
		connecting: make(chan struct{}, maxConnecting),
		sessions:   make(chan struct{}, maxSessions),
		turned:     make(chan struct{}, maxTurned),
		grants:     call.Grants,
		asks:       quota.NewAllowance(freshQuestions, questionEvery, time.Now),
		reports:    quota.NewAllowance(reportsAtOnce, askedEvery, time.Now),
		connects:   s.allowance(),
		begins:     s.allowance(),
		redials:    s.allowance(),
		redialing:  make(chan struct{}, 1),
	}
	n.ctx, n.cancel = context.WithCancelCause(context.Background())
	defer func() {
		if err = errors.Join(err, uplink.CloseFiles(files[:2])); err != nil {
			err = errors.Join(err, n.close())
		}
	}()
	if n.book, err = resolver.OpenBook(files[2]); err != nil {
		return nil, errors.Join(err, files[2].Close())
	}
	return n, n.listen(files[0], files[1])
}

func (s *server) allowance() *quota.Allowance {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.fresh()
}

// redial waits until a connection that is there may have another one to its server.
func (n *network) redial(ctx context.Context) error {
	select {
	case n.redialing <- struct{}{}:
		defer func() { <-n.redialing }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if !n.redials.Wait(ctx) {
		return context.Cause(ctx)
	}
	return nil
}

// listen takes the sockets over.
func (n *network) listen(tcp, udp *os.File) error {
	l, err := net.FileListener(tcp)
	if err != nil {
		return fmt.Errorf("cannot use the listener: %w", err)
	}
	var ok bool
	if n.tcp, ok = l.(*net.TCPListener); !ok {
		return errors.Join(fmt.Errorf("cannot accept TCP from a %T", l), l.Close())
	}
	c, err := net.FilePacketConn(udp)
	if err != nil {
		return fmt.Errorf("cannot use the socket for datagrams: %w", err)
	}
	if n.udp, ok = c.(*net.UDPConn); !ok {
		return errors.Join(fmt.Errorf("cannot receive datagrams from a %T", c), c.Close())
	}
	return nil
}

// close ends everything of the chat. It waits for that no longer than closeTimeout: the chat's
// servers and programs may be at work to delay it, and others wait for the answer.
func (n *network) close() (err error) {
	n.mu.Lock()
	n.closed = true
	n.mu.Unlock()
	n.cancel(errClosed)
	if n.tcp != nil {
		err = errors.Join(err, n.tcp.Close())
	}
	if n.udp != nil {
		err = errors.Join(err, n.udp.Close())
	}
	ended := make(chan error, 1)
	go func() { ended <- n.end() }()
	select {
	case endErr := <-ended:
		err = errors.Join(err, endErr)
	case <-time.After(closeTimeout):
		err = errors.Join(err, fmt.Errorf("it has not ended within %s", closeTimeout))
		n.s.log.Error("a chat has not ended in time", "chat", n.id, "stacks", stacks())
	}
	if err != nil {
		return fmt.Errorf("cannot close the network of chat %s: %w", n.id, err)
	}
	return nil
}

// end waits for every goroutine of the chat, and gives up what they use.
func (n *network) end() error {
	n.all.Wait()
	n.s.leaveOwner(n.of)
	if n.book == nil {
		return nil
	}
	return n.book.Close()
}

// stacks are where the goroutines are, in 64 KiB at most.
func stacks() string {
	b := make([]byte, 64<<10)
	return string(b[:runtime.Stack(b, true)])
}

// network is that of a chat that is open, or nil.
func (s *server) network(id chat.ID) *network {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.networks[id]
}

// close ends a chat, if it is known.
func (s *server) close(id chat.ID) error {
	s.mu.Lock()
	n := s.networks[id]
	delete(s.networks, id)
	s.mu.Unlock()
	if n == nil {
		return nil
	}
	return n.close()
}

func (s *server) closeAll() (err error) {
	s.mu.Lock()
	networks := s.networks
	s.networks = map[chat.ID]*network{}
	s.mu.Unlock()
	ended := make(chan error, len(networks))
	for _, n := range networks {
		go func() { ended <- n.close() }()
	}
	for range networks {
		err = errors.Join(err, <-ended)
	}
	return err
}

// change replaces a chat's list, and ends what it no longer opens.
func (s *server) change(id chat.ID, list []chat.Allow) error {
	n := s.network(id)
	if n == nil {
		return fmt.Errorf("cannot change chat %s: its network is not open: %w",
			id, chat.ErrNotFound)
	}
	var cut []*carried
	n.mu.Lock()
	n.list = list
	for c := range n.carried {
		if !c.stillListed() {
			cut = append(cut, c)
		}
	}
	n.mu.Unlock()
	for _, c := range cut {
		c.cancel(errUnlisted)
	}
	late := time.After(closeTimeout)
	for _, c := range cut {
		select {
		case <-c.done:
		case <-late:
			return fmt.Errorf("cannot change chat %s: a connection to %s has not ended within %s",
				id, c.dst, closeTimeout)
		}
	}
	return nil
}

// plain removes the form in which a dual-stack socket writes IPv4 (ipv6(7)).
func plain(a netip.AddrPort) netip.AddrPort { return netip.AddrPortFrom(a.Addr().Unmap(), a.Port()) }
