// Command chatd-root is the part of chatd that has the privilege: accounts, homes, limits, walls,
// sessions, records and the audit log. "chatd serve" becomes it.
//
// It links no HTTP, no TLS and no MCP. Callers connect to the front (chatd front), which chatd-root
// starts as a user of its own, and which requests each act over a socket; see package broker.
// chatd-root restarts a front that ends.
//
// # Runs as
//
// root, with the eleven capabilities of chatd.service where systemd runs it.
//
// # What it does not stop
//
// See packages broker and provision. It still reads commands, schedules and the output of
// terminals.
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/config"
	"github.com/chatd/chatd/internal/journal"
	"github.com/chatd/chatd/provision"
	"github.com/chatd/chatd/provision/packetrules"
	"github.com/chatd/chatd/state"
)

// version is set by the linker: -ldflags "-X main.version=…".
var version = "dev"

const usage = `usage: chatd-root [serve | doctor | wall | check] [FLAGS]
       chatd-root --help | --version

The part of chatd that has the privilege. chatd starts it: chatd serve becomes it, and chatd
doctor and chatd wall, without a daemon, ask it. So do chatd serve --check and chatd policy
check. It needs root, but for check.

   --config FILE         the config (default ` + config.File + `, if it is there)
   --set KEY/KEY=VALUE   a value over the config, as profiles/agent/guard/preset=none; chatd sets
                         those of its flags and variables
   --inherit FD          the socket that systemd made
   --front FILE          the program of the front and of the config step (default: chatd
                         beside this one)
   --policy FILE         check: look at this file of rules, and read no config

   chatd-root serve --config /etc/chatd/chatd.yaml

exit codes: 0 done · 1 internal · 2 invalid · 3 denied · 69 unsupported here · 75 another one runs
`

func main() {
	// For good: a second signal on the way out changes no exit code.
	ctx, _ := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// run is main with its surroundings; it returns the exit code.
func run(ctx context.Context, args []string, out, errs io.Writer) int {
	err := start(ctx, args, out)
	if err != nil {
		fmt.Fprintf(errs, "%schatd: %s\n", journal.Priority(errs), chat.ErrorText(err))
	}
	return chat.ExitCode(err)
}

// arguments are the parsed command line.
type arguments struct {
	verb    string
	front   string
	policy  string
	inherit int // a descriptor; 0 is none
	compiler
}

func parse(args []string, out io.Writer) (a arguments, done bool, err error) {
	a.verb = "serve"
	if len(args) > 0 && !strings.HasPrefix(args[0], "-") {
		a.verb, args = args[0], args[1:]
	}
	flags := flag.NewFlagSet("chatd-root", flag.ContinueOnError)
	for name, to := range map[string]*string{"config": &a.file, "front": &a.front, "policy": &a.policy} {
		flags.StringVar(to, name, "", "")
	}
	flags.Func("set", "", func(text string) error {
		a.set = append(a.set, text)
		return nil
	})
	flags.IntVar(&a.inherit, "inherit", 0, "")
	done, err = chat.Arguments(flags, args, out, a.verb, usage, version)
	a.front = cmp.Or(a.front, config.FindProgram("chatd"))
	a.program, a.apart = a.front, a.verb != "wall"
	return a, done, err
}

func start(ctx context.Context, args []string, out io.Writer) error {
	a, done, err := parse(args, out)
	if done || err != nil {
		return err
	}
	if a.verb == "check" {
		return check(ctx, a, out)
	}
	do, known := map[string]func(context.Context, config.Config, arguments, io.Writer) error{
		"serve": serve, "doctor": doctor, "wall": wall,
	}[a.verb]
	if !known {
		return chat.Invalid("cannot do %s: want serve, doctor, wall or check, see chatd-root --help",
			chat.Quote(a.verb))
	}
	if os.Geteuid() != 0 {
		return fmt.Errorf("cannot %s: want root, this is uid %d: %w", a.verb, os.Geteuid(), chat.ErrDenied)
	}
	cfg, err := a.config(ctx)
	if err != nil {
		return err
	}
	return do(ctx, cfg, a, out)
}

// doctor tries every layer and writes a chat.Host. It is for a network namespace of its own,
// where packet rules can be raised and tried without touching the host's.
func doctor(ctx context.Context, cfg config.Config, a arguments, out io.Writer) error {
	if err := bringUp("lo"); err != nil {
		return err
	}
	opt, err := provisionOptions(ctx, cfg, a.compiler)
	if err != nil {
		return err
	}
	h, err := provision.Doctor(ctx, opt)
	if err != nil {
		return err
	}
	return answer(out, h)
}

// answer writes what chatd reads.
func answer(out io.Writer, v any) error {
	if err := json.NewEncoder(out).Encode(v); err != nil {
		return fmt.Errorf("cannot write what was found: %w", err)
	}
	return nil
}

// wall reads nothing of the config but the uids, and writes them: at boot the rest may not be there
// yet.
func wall(ctx context.Context, cfg config.Config, _ arguments, out io.Writer) error {
	if err := packetrules.RaiseAll(ctx, state.Range(cfg.UIDs)); err != nil {
		return err
	}
	return answer(out, cfg.UIDs)
}
