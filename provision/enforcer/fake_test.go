package enforcer

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chatd/chatd/internal/orders"
	"github.com/chatd/chatd/test/must"
)

// TestMain is also the program that the tests start as the enforcer.
func TestMain(m *testing.M) {
	if os.Args[0] == "chatd-enforce" {
		os.Exit(fakeProgram())
	}
	os.Exit(m.Run())
}

// fakeProgram answers every order, as one of its kind does for a directory, until it is told to
// drop a chat. The file how in its directory changes that.
func fakeProgram() int {
	flags := flag.NewFlagSet("", flag.ExitOnError)
	dir := flags.String("dir", "", "")
	idle := flags.Bool("idle-end", false, "")
	_ = flags.Parse(os.Args[1:])
	if !*idle || len(os.Environ()) > 0 {
		fmt.Println("want --idle-end, and no environment")
		return 1
	}
	_ = os.WriteFile("/proc/self/comm", []byte("chatd-enforce"), 0) // as the program does
	switch how, _ := os.ReadFile(filepath.Join(*dir, "how")); string(how) {
	case "ends":
		fmt.Println("it cannot go on")
		return 1
	case "waits": // until the file goes
		for {
			if _, err := os.Stat(filepath.Join(*dir, "how")); err != nil {
				return 0
			}
			time.Sleep(time.Millisecond)
		}
	}
	l, err := net.Listen("unix", filepath.Join(*dir, orders.Socket))
	if err != nil {
		awaitOther(*dir)
		fmt.Println("another one does")
		return 1
	}
	for {
		conn, err := l.Accept()
		if err != nil {
			return 1
		}
		var o orders.Order
		err = json.NewDecoder(conn).Decode(&o)
		if err == nil {
			_, err = io.WriteString(conn, "{}\n")
		}
		_ = conn.Close()
		if err != nil {
			return 1
		}
		if o.Verb == orders.Drop {
			return 0
		}
	}
}

// awaitOther waits until the other enforcer of a directory answers, at most a second. The program
// waits as long for its lock before it ends; a socket that is bound does not listen yet.
func awaitOther(dir string) {
	for end := time.Now().Add(time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if of(dir).Keeps(context.Background(), Session{}) {
			return
		}
	}
}

// fake is an enforcer's socket in a directory.
type fake struct {
	dir string
	l   *net.UnixListener

	mu    sync.Mutex
	verbs []string
}

// answers makes an enforcer that calls answer with each order, and ends its connection.
func answers(t *testing.T, dir string, answer func(*net.UnixConn, orders.Order)) *fake {
	t.Helper()
	l := must.Get(net.ListenUnix("unix", at(dir, orders.Socket)))(t)
	f := &fake{dir: dir, l: l}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			conn, err := l.AcceptUnix()
			if err != nil {
				return
			}
			go f.serve(conn, answer)
		}
	}()
	return f
}

func (f *fake) serve(conn *net.UnixConn, answer func(*net.UnixConn, orders.Order)) {
	defer conn.Close()
	var o orders.Order
	if json.NewDecoder(conn).Decode(&o) != nil {
		return
	}
	f.mu.Lock()
	f.verbs = append(f.verbs, o.Verb)
	f.mu.Unlock()
	answer(conn, o)
}

// asked counts the orders with a verb.
func (f *fake) asked(verb string) (n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, v := range f.verbs {
		if v == verb {
			n++
		}
	}
	return n
}

// with answers each order with a text.
func with(text string) func(*net.UnixConn, orders.Order) {
	return func(conn *net.UnixConn, _ orders.Order) { _, _ = io.WriteString(conn, text) }
}

// at is the address of a socket in a directory.
func at(dir, name string) *net.UnixAddr {
	return &net.UnixAddr{Name: filepath.Join(dir, name), Net: "unix"}
}

// of is a client of the enforcer in dir, which is not to start another.
func of(dir string) *Client { return client(Options{Dir: dir, Program: "/none"}) }

func client(o Options) *Client {
	o.Log, o.Report = slog.New(slog.DiscardHandler), func(error) {}
	return New(o)
}

// says reports whether err has the text, or is nil where that is empty.
func says(err error, text string) bool {
	if err == nil || text == "" {
		return err == nil && text == ""
	}
	return strings.Contains(err.Error(), text)
}

// until waits for what other goroutines or processes do.
func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !ok(); time.Sleep(time.Millisecond) {
		must.True(t, !time.Now().After(end), "it is not so that %s", what)
	}
}

func needsRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() == 0 {
		return
	}
	must.True(t, os.Getenv("CHATD_TEST_REQUIRE") != "all", "needs root, and CHATD_TEST_REQUIRE=all")
	t.Skip("SKIPPED: needs root: the program must be root's")
}
