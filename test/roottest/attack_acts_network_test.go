package roottest

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/net/dns/dnsmessage"
	"golang.org/x/sys/unix"
)

// dialTime is how long an attacker waits for a connection and for data on it: dropped packets get
// no answer. Servers stay longer.
const dialTime = 10 * time.Second

// networkActs are what an attacker does with addresses.
var networkActs = map[string]act{
	"dial": func(a []string) (string, error) {
		c := value(net.DialTimeout("tcp", a[0], dialTime))
		return hear(c)
	},
	"dial-mptcp": func(a []string) (string, error) {
		d := net.Dialer{Timeout: dialTime}
		d.SetMultipathTCP(true)
		c := value(d.DialContext(context.Background(), "tcp", a[0]))
		return hear(c)
	},
	// dial-marked asks for what a rule by mark or device might let pass.
	"dial-marked": dialMarked,
	"send-udp": func(a []string) (string, error) {
		c := value(net.Dial("udp", a[0]))
		defer c.Close()
		value(c.Write([]byte("x")))
		return "", nil
	},
	"ping": func(a []string) (string, error) {
		fd := value(unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, unix.IPPROTO_ICMP))
		defer unix.Close(fd)
		to := unix.SockaddrInet4{Addr: [4]byte(net.ParseIP(a[0]).To4())}
		return "", unix.Sendto(fd, []byte{8, 0, 0, 0, 0, 0, 0, 0}, 0, &to)
	},
	"devices": func([]string) (string, error) {
		text, err := os.ReadFile("/proc/self/net/dev") // without netlink, which a chat may not
		var names []string
		for line := range strings.Lines(string(text)) {
			if name, _, ok := strings.Cut(line, ":"); ok {
				names = append(names, strings.TrimSpace(name))
			}
		}
		return strings.Join(names, " "), err
	},
	"dial-any": dialAny,
	"peer":     peerMain,
}

// dialAny connects to all addresses simultaneously and succeeds if one answers.
func dialAny(addresses []string) (string, error) {
	got := make(chan string)
	for _, a := range addresses {
		go func() { got <- attempt([]string{"dial", a}) }()
	}
	var said []string
	for range addresses {
		one := <-got
		if strings.HasPrefix(one, "ok") {
			return one, nil
		}
		said = append(said, one)
	}
	return "", errors.New(strings.Join(said, ","))
}

func dialMarked(a []string) (string, error) {
	fd := value(unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0))
	defer unix.Close(fd)
	check(unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_MARK, number(a[0])))
	return "", nil
}

// peerAddresses are what the peer's end of the wire has: outside the machine as
// far as a chat is concerned. One is where clouds keep their secrets; others
// are private, shared and link-local ranges, and one of each family is public.
var peerAddresses = []string{
	"10.213.0.2/24", "172.16.213.2/24", "192.168.213.2/24", "100.64.213.2/24", "169.254.169.254/16", "203.0.113.2/24",
	"fd13:213::2/64", "2001:db8:213::2/64", "fe80::213/64",
}

// peerMain is the outside: it waits for its end of the wire, opens ports 80,
// 8000 and 9000, and then does what its stdin says: "dial ADDRESS" as an
// attacker, "heard" for how many datagrams came.
func peerMain([]string) (string, error) {
	lines := bufio.NewScanner(os.Stdin)
	var heard atomic.Int64
	for lines.Scan() {
		word, rest, _ := strings.Cut(lines.Text(), " ")
		switch word {
		case "up":
			fmt.Println(errorText(peerUp(rest, &heard)))
		case "heard":
			fmt.Println("ok", heard.Load())
		default:
			fmt.Println(attempt(strings.Fields(lines.Text())))
		}
	}
	return "", lines.Err()
}

func errorText(err error) string {
	if err != nil {
		return err.Error()
	}
	return "ok"
}

func peerUp(device string, heard *atomic.Int64) error {
	commands := []string{"link set lo up", "link set " + device + " up"}
	for _, a := range peerAddresses {
		flag := ""
		if strings.Contains(a, ":") {
			flag = " nodad"
		}
		commands = append(commands, "addr add "+a+" dev "+device+flag)
	}
	if err := ipCommands(commands); err != nil {
		return err
	}
	for _, port := range []string{":80", ":8000", ":9000"} {
		l, err := net.Listen("tcp", port)
		if err != nil {
			return err
		}
		go answerAll(l)
	}
	u, err := net.ListenPacket("udp", ":9000")
	if err != nil {
		return err
	}
	go func() {
		for {
			if _, _, err := u.ReadFrom(make([]byte, 8)); err != nil {
				return
			}
			heard.Add(1)
		}
	}()
	return nil
}

func answerAll(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		go func() { c.Write([]byte(secretOfServer)); time.Sleep(15 * time.Second); c.Close() }()
	}
}

func ipCommands(commands []string) error {
	var errs []error
	for _, c := range commands {
		if out, err := exec.Command("ip", strings.Fields(c)...).CombinedOutput(); err != nil {
			errs = append(errs, fmt.Errorf("cannot run ip %s: %w: %s", c, err, out))
		}
	}
	return errors.Join(errs...)
}

// nameActs are what an attacker does with names.
var nameActs = map[string]act{
	// lookup NAME [IP NETWORK]
	"lookup": func(a []string) (string, error) {
		addrs, err := net.DefaultResolver.LookupNetIP(context.Background(), append(a, "ip")[1],
			a[0])
		if err != nil {
			return "", lookupError(err)
		}
		slices.SortFunc(addrs, netip.Addr.Compare)
		return fmt.Sprint(addrs), nil
	},
	// query SERVER NAME TYPE-NUMBER
	"query": func(a []string) (string, error) { return query(a[0], a[1], number(a[2])) },
	// say ADDRESS TEXT: what a server answers to a line
	"say": func(a []string) (string, error) {
		c, err := net.DialTimeout("tcp", a[0], dialTime)
		if err != nil {
			return "", lookupError(err)
		}
		return say(c, a[1])
	},
	"say-udp": func(a []string) (string, error) {
		c, err := net.Dial("udp", a[0])
		if err != nil {
			return "", lookupError(err)
		}
		return say(c, a[1])
	},
	// flows NUMBER ADDRESS: datagrams, each of a port of its own
	"flows": func(a []string) (string, error) {
		for range number(a[0]) {
			c := value(net.Dial("udp", a[1]))
			value(c.Write([]byte("x")))
			check(c.Close())
			time.Sleep(2 * time.Millisecond) // the queue of chatd-egress is short
		}
		return "done", nil
	},
	// tls ADDRESS NAME: the server name of TLS, "-" for none
	"tls": func(a []string) (string, error) {
		c, err := net.DialTimeout("tcp", a[0], dialTime)
		if err != nil {
			return "", lookupError(err)
		}
		defer c.Close()
		check(c.SetDeadline(time.Now().Add(dialTime)))
		t := tls.Client(c, &tls.Config{ServerName: strings.Trim(a[1], "-"),
			InsecureSkipVerify: true})
		check(t.Handshake())
		return say(t, "over TLS")
	},
	// hosts ADDRESS HOST…: one request for each, pipelined
	"hosts": pipelined,
}

// lookupError shortens what the resolver of Go says.
func lookupError(err error) error {
	var dns *net.DNSError
	if errors.As(err, &dns) {
		if dns.IsNotFound {
			return errors.New("NXDOMAIN")
		}
		return errors.New("unanswered: " + dns.Err)
	}
	return err
}

func say(c net.Conn, text string) (string, error) {
	defer c.Close()
	check(c.SetDeadline(time.Now().Add(dialTime)))
	value(io.WriteString(c, text+"\n"))
	line, err := bufio.NewReader(c).ReadString('\n')
	if err != nil && line == "" {
		return "", err
	}
	return strings.TrimSpace(line), nil
}

// query sends one query, and words the answer: its code and the number of answers.
func query(server, name string, kind int) (string, error) {
	q := dnsmessage.Message{
		Header: dnsmessage.Header{ID: 7, RecursionDesired: true},
		Questions: []dnsmessage.Question{{Name: dnsmessage.MustNewName(name + "."),
			Type: dnsmessage.Type(kind), Class: dnsmessage.ClassINET}},
	}
	b := value(q.Pack())
	c := value(net.Dial("udp", server))
	defer c.Close()
	check(c.SetDeadline(time.Now().Add(dialTime)))
	value(c.Write(b))
	answer := make([]byte, 4096)
	n := value(c.Read(answer))
	var m dnsmessage.Message
	check(m.Unpack(answer[:n]))
	return fmt.Sprintf("%s %d", strings.TrimPrefix(m.RCode.String(), "RCode"), len(m.Answers)), nil
}

func pipelined(a []string) (string, error) {
	c, err := net.DialTimeout("tcp", a[0], dialTime)
	if err != nil {
		return "", lookupError(err)
	}
	defer c.Close()
	check(c.SetDeadline(time.Now().Add(dialTime)))
	var all strings.Builder
	for _, host := range a[1:] {
		fmt.Fprintf(&all, "GET / HTTP/1.1\r\nHost: %s\r\n\r\n", host)
	}
	value(io.WriteString(c, all.String()))
	var got []string
	r := bufio.NewReader(c)
	for range a[1:] {
		answer, err := http.ReadResponse(r, nil)
		if err != nil {
			return strings.Join(append(got, "end"), " "), nil
		}
		body := value(io.ReadAll(answer.Body))
		got = append(got, fmt.Sprint(answer.StatusCode, ":",
			strings.Fields(string(body) + " ?")[0]))
	}
	return strings.Join(got, " "), nil
}

// socketActs take kernel memory by way of sockets and locks.
var socketActs = map[string]act{
	"take": take,
	"hold": hold,
}

// takers each take what one call after the other gives, until there is no more.
var takers = map[string]func(){
	"waiting connections":  takeConnections,
	"unfinished datagrams": func() { takeDatagrams(false) },
	"hidden datagrams":     func() { takeDatagrams(true) },
	"queued datagrams":     takeQueues,
	"copies of datagrams":  takeCopies,
	"pairs":                takePairs,
	"locks":                takeLocks,
	"netlink":              takeNetlink,
}

// take starts a[1] processes that take a[0], and stays with them.
func take(a []string) (string, error) {
	self := value(os.Executable())
	for range number(a[1]) {
		cmd := exec.Command(self, "hold", a[0])
		cmd.Args[0] = attackName
		if err := cmd.Start(); err != nil {
			return "", err // no more tasks: those that are there go on
		}
	}
	unix.Pause()
	return "", nil
}

func hold(a []string) (string, error) {
	takers[a[0]]()
	unix.Pause()
	return "", nil
}

// bytes64K is as much as a datagram holds.
var bytes64K = make([]byte, 65_000)

var anyPort = &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}

func newSocket(kind int) (int, bool) {
	fd, err := unix.Socket(unix.AF_INET, kind|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	return fd, err == nil
}

// takeConnections connects to listeners that accept nothing, sends, and closes: what was
// sent stays with the listener.
func takeConnections() {
	for {
		l, ok := newSocket(unix.SOCK_STREAM)
		if !ok || unix.Bind(l, anyPort) != nil || unix.Listen(l, 4096) != nil {
			return
		}
		name, _ := unix.Getsockname(l)
		for range 4000 {
			c, ok := newSocket(unix.SOCK_STREAM)
			if !ok {
				return
			}
			_ = unix.Connect(c, name) // in progress, and done on the same host
			for {
				if _, err := unix.Write(c, bytes64K); err != nil {
					break
				}
			}
			unix.Close(c)
		}
	}
}

// takeDatagrams begins datagrams and does not finish them. Hidden, it unbinds each socket
// again, and then no list of the kernel shows it.
func takeDatagrams(hidden bool) {
	sink, _ := newSocket(unix.SOCK_DGRAM)
	_ = unix.Bind(sink, anyPort)
	name, _ := unix.Getsockname(sink)
	for {
		fd, ok := newSocket(unix.SOCK_DGRAM)
		if !ok {
			return
		}
		_ = unix.Sendto(fd, bytes64K[:60_000], unix.MSG_MORE, name)
		if hidden {
			disconnect(fd)
		}
	}
}

// disconnect is connect(2) with AF_UNSPEC.
func disconnect(fd int) {
	var unspecified [16]byte
	_, _, _ = unix.RawSyscall(unix.SYS_CONNECT, uintptr(fd), uintptr(unsafe.Pointer(&unspecified)), uintptr(len(unspecified)))
}

// takeQueues sends datagrams that are never read.
func takeQueues() {
	sendAll(func(fd int, sink unix.Sockaddr) {
		if sink, err := unix.Getsockname(fd); err == nil {
			_ = unix.Sendto(fd, bytes64K[:30_000], 0, sink)
		}
	})
}

// takeCopies asks for a time stamp with each datagram, by a control message, where no
// option has to be set: a copy of each waits on the error queue.
func takeCopies() {
	stamp := controlMessage(unix.SOL_SOCKET, unix.SO_TIMESTAMPING, unix.SOF_TIMESTAMPING_TX_SOFTWARE)
	sendAll(func(fd int, sink unix.Sockaddr) { _ = unix.Sendmsg(fd, bytes64K[:60_000], stamp, sink, 0) })
}

// sendAll sends ten times by as many sockets as there are to be had, and then again by all:
// on a busy host datagrams are lost.
func sendAll(send func(fd int, sink unix.Sockaddr)) {
	first, _ := newSocket(unix.SOCK_DGRAM)
	_ = unix.Bind(first, anyPort)
	sink, _ := unix.Getsockname(first)
	var all []int
	for {
		fd, ok := newSocket(unix.SOCK_DGRAM)
		if !ok || unix.Bind(fd, anyPort) != nil {
			break
		}
		all = append(all, fd)
		for range 10 {
			send(fd, sink)
		}
	}
	for ; ; time.Sleep(10 * time.Millisecond) {
		for _, fd := range all {
			send(fd, sink)
		}
	}
}

// takePairs fills pairs of unix sockets.
func takePairs() {
	for {
		pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return
		}
		for {
			if _, err := unix.Write(pair[0], bytes64K); err != nil {
				break
			}
		}
	}
}

// takeLocks locks single bytes of files in its directory.
func takeLocks() {
	for n := 0; ; n++ {
		name := filepath.Join(os.TempDir(), fmt.Sprintf("locks-%d-%d", os.Getpid(), n))
		fd, err := unix.Open(name, unix.O_RDWR|unix.O_CREAT|unix.O_CLOEXEC, 0o600)
		if err != nil {
			return
		}
		for at := range int64(1000) {
			lock := unix.Flock_t{Type: unix.F_WRLCK, Start: 2 * at, Len: 1}
			if unix.FcntlFlock(uintptr(fd), unix.F_SETLK, &lock) != nil {
				return
			}
		}
	}
}

// takeNetlink asks for all interfaces, again and again, and reads nothing.
func takeNetlink() {
	ask := make([]byte, 32)
	binary.NativeEndian.PutUint32(ask, uint32(len(ask)))
	binary.NativeEndian.PutUint16(ask[4:], unix.RTM_GETLINK)
	binary.NativeEndian.PutUint16(ask[6:], unix.NLM_F_REQUEST|unix.NLM_F_DUMP)
	for {
		fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
		if err != nil {
			return
		}
		_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, 4<<20)
		for range 500 {
			if unix.Sendto(fd, ask, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}) != nil {
				break
			}
		}
	}
}

// controlMessage is one of sendmsg(2) with a value of 32 bits.
func controlMessage(level, kind int, value uint32) []byte {
	b := make([]byte, unix.CmsgSpace(4))
	binary.NativeEndian.PutUint64(b, uint64(unix.CmsgLen(4)))
	binary.NativeEndian.PutUint32(b[8:], uint32(level))
	binary.NativeEndian.PutUint32(b[12:], uint32(kind))
	binary.NativeEndian.PutUint32(b[unix.CmsgLen(0):], value)
	return b
}
