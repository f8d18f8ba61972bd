package roottest

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"

	"golang.org/x/net/dns/dnsmessage"
)

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
			c, err := net.Dial("udp", a[1])
			if err != nil {
				return "", err
			}
			_, err = c.Write([]byte("x"))
			if err = errors.Join(err, c.Close()); err != nil {
				return "", err
			}
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
		if err := c.SetDeadline(time.Now().Add(dialTime)); err != nil {
			return "", err
		}
		t := tls.Client(c, &tls.Config{ServerName: strings.Trim(a[1], "-"),
			InsecureSkipVerify: true})
		if err := t.Handshake(); err != nil {
			return "", err
		}
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
	if err := c.SetDeadline(time.Now().Add(dialTime)); err != nil {
		return "", err
	}
	if _, err := io.WriteString(c, text+"\n"); err != nil {
		return "", err
	}
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
	b, err := q.Pack()
	if err != nil {
		return "", err
	}
	c, err := net.Dial("udp", server)
	if err != nil {
		return "", err
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(dialTime)); err != nil {
		return "", err
	}
	if _, err := c.Write(b); err != nil {
		return "", err
	}
	answer := make([]byte, 4096)
	n, err := c.Read(answer)
	if err != nil {
		return "", err
	}
	var m dnsmessage.Message
	if err := m.Unpack(answer[:n]); err != nil {
		return "", err
	}
	return fmt.Sprintf("%s %d", strings.TrimPrefix(m.RCode.String(), "RCode"), len(m.Answers)), nil
}

func pipelined(a []string) (string, error) {
	c, err := net.DialTimeout("tcp", a[0], dialTime)
	if err != nil {
		return "", lookupError(err)
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(dialTime)); err != nil {
		return "", err
	}
	var all strings.Builder
	for _, host := range a[1:] {
		fmt.Fprintf(&all, "GET / HTTP/1.1\r\nHost: %s\r\n\r\n", host)
	}
	if _, err := io.WriteString(c, all.String()); err != nil {
		return "", err
	}
	var got []string
	r := bufio.NewReader(c)
	for range a[1:] {
		answer, err := http.ReadResponse(r, nil)
		if err != nil {
			return strings.Join(append(got, "end"), " "), nil
		}
		body, err := io.ReadAll(answer.Body)
		if err != nil {
			return "", err
		}
		got = append(got, fmt.Sprint(answer.StatusCode, ":",
			strings.Fields(string(body) + " ?")[0]))
	}
	return strings.Join(got, " "), nil
}
