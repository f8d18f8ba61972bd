// Command chatd-egress carries what leaves the chats' networks to where their profiles let it go.
// See package egress.
//
// # Runs as
//
// A user of its own, without a capability, in an empty network namespace. chatd-root connects to
// the socket that it inherits as descriptor 3, tells it which chats are awake, and makes all its
// sockets.
//
// # What it does not stop
//
// See package egress.
package main

import (
	"context"
	"crypto/x509"
	"errors"
	"flag"
	"fmt"
	"io"
	stdlog "log"
	"net"
	"os"
	"os/signal"
	"runtime/debug"
	"time"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/egress"
	"github.com/chatd/chatd/internal/journal"
)

// version is set by the linker: -ldflags "-X main.version=…".
var version = "dev"

// listenerFD is the first descriptor that is passed (sd_listen_fds(3)).
const listenerFD = 3

const usage = `usage: chatd-egress [--idle-end]
       chatd-egress --help | --version

Carries the connections of chatd's chats to where their profiles let them go. It wants a user of its
own, and as descriptor 3 the listening SOCK_SEQPACKET socket that chatd-root connects to, as systemd
passes it (chatd-egress.socket). It ends on SIGTERM, and with it all connections of chats.

   --idle-end    end also when for 10 s there was no chatd-root and no awake chat

exit codes: 0 done · 1 internal · 2 invalid · 69 unsupported here
`

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

// run is main with its surroundings; it returns the exit code.
func run(args []string, out io.Writer, errs *os.File) int {
	err := start(args, out, errs)
	if err != nil {
		fmt.Fprintf(errs, "%schatd-egress: %s\n", journal.Priority(errs), chat.ErrorText(err))
	}
	return chat.ExitCode(err)
}

func start(args []string, out io.Writer, errs *os.File) error {
	flags := flag.NewFlagSet("chatd-egress", flag.ContinueOnError)
	idle := flags.Bool("idle-end", false, "")
	if done, err := chat.Arguments(flags, args, out, "carry", usage, version); done || err != nil {
		return err
	}
	if *idle {
		return serve(errs, idleEnd)
	}
	return serve(errs, 0)
}

const idleEnd = 10 * time.Second

// maxFile is the size in bytes of the largest file: 4096 names of 254 bytes take half of it. The
// log may be one too.
const maxFile = 2 << 20

// limitFiles bounds what is written, for good (getrlimit(2)). A log at its limit ends nothing.
func limitFiles() error {
	signal.Ignore(unix.SIGXFSZ)
	err := unix.Setrlimit(unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: maxFile, Max: maxFile})
	if err != nil {
		return fmt.Errorf("cannot bound its files: %w", err)
	}
	return nil
}

// memoryLimit is where the collector begins to work harder: below MemoryMax of the unit, which
// counts the buffers of sockets too.
const memoryLimit = 640 << 20

// serve carries until SIGTERM.
func serve(errs *os.File, idleEnd time.Duration) error {
	if os.Geteuid() == 0 {
		return fmt.Errorf("cannot carry as root: want a user of its own: %w", chat.ErrUnsupported)
	}
	listener, err := takeListener()
	if err != nil {
		return err
	}
	debug.SetMemoryLimit(memoryLimit)
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGTERM, unix.SIGINT)
	defer stop()
	if err := limitFiles(); err != nil {
		return err
	}
	log := journal.New(errs)
	log.Debug("chatd-egress is confined from now",
		"local time", time.Now().Local()) // reads the zone
	stdlog.SetOutput(io.Discard) // net/http writes there what a server sent, which may be a secret
	roots, err := x509.SystemCertPool()
	if err != nil {
		log.Warn("no server of a secret will be trusted", "why", err)
	}
	_ = os.WriteFile("/proc/self/comm", []byte("chatd-egress"), 0) // only what ps shows
	missing, err := egress.Confine()
	if err != nil {
		return err
	}
	if len(missing) > 0 {
		log.Warn("chatd-egress lacks a wall that this kernel does not have", "missing", missing)
	}
	return egress.Serve(ctx, egress.Options{Listener: listener, IdleEnd: idleEnd, Log: log,
		Roots: roots})
}

// takeListener takes over the socket that is passed.
func takeListener() (*net.UnixListener, error) {
	kind, err := unix.GetsockoptInt(listenerFD, unix.SOL_SOCKET, unix.SO_TYPE)
	if err != nil || kind != unix.SOCK_SEQPACKET {
		return nil, chat.Invalid("cannot carry: descriptor %d is no SOCK_SEQPACKET socket: "+
			"chatd-egress.socket passes it", listenerFD)
	}
	// chatd-root learns by this which process to kill if it hangs (unix(7), SO_PEERCRED).
	if err := unix.Listen(listenerFD, unix.SOMAXCONN); err != nil {
		return nil, fmt.Errorf("cannot listen: %w", err)
	}
	f := os.NewFile(listenerFD, "listener")
	l, err := net.FileListener(f)
	if err = errors.Join(err, f.Close()); err != nil {
		return nil, fmt.Errorf("cannot take over the listener: %w", err)
	}
	u, ok := l.(*net.UnixListener)
	if !ok {
		err := chat.Invalid("cannot listen by a %T", l)
		return nil, errors.Join(err, l.Close())
	}
	return u, nil
}
