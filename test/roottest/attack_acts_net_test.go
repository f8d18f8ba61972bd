package roottest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// dialTime is how long an attacker waits for a connection and for data on it: dropped packets get
// no answer. Servers stay longer.
const dialTime = 10 * time.Second

// networkActs are what an attacker does with addresses.
var networkActs = map[string]act{
	"dial": func(a []string) (string, error) {
		c, err := net.DialTimeout("tcp", a[0], dialTime)
		if err != nil {
			return "", err
		}
		return hear(c)
	},
	"dial-mptcp": func(a []string) (string, error) {
		d := net.Dialer{Timeout: dialTime}
		d.SetMultipathTCP(true)
		c, err := d.DialContext(context.Background(), "tcp", a[0])
		if err != nil {
			return "", err
		}
		return hear(c)
	},
	// dial-marked asks for what a rule by mark or device might let pass.
	"dial-marked": dialMarked,
	"send-udp": func(a []string) (string, error) {
		c, err := net.Dial("udp", a[0])
		if err != nil {
			return "", err
		}
		defer c.Close()
		_, err = c.Write([]byte("x"))
		return "", err
	},
	"ping": func(a []string) (string, error) {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, unix.IPPROTO_ICMP)
		if err != nil {
			return "", err
		}
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
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return "", err
	}
	defer unix.Close(fd)
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_MARK, number(a[0])); err != nil {
		return "", err
	}
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
