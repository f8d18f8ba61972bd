// Command chatd-enforce makes the kernel keep the file rules of sessions, beside chatd and also
// while chatd is down. It mounts over what the rules close and answers for each open of what comes
// later. See package enforce.
//
// # Runs as
//
// root, with seven capabilities where systemd runs it (chatd-keeper.service); without systemd
// chatd starts it. One holder, which has the socket and the kernel's queues, and one worker,
// which does the work and is started again when it ends. It takes orders only over a socket in
// a directory of root's, and reads names in the chats' trees, never what a file holds.
//
// # What it does not stop
//
// See package enforce.
package main

import (
	"flag"
	"fmt"
	"io"
	"os"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/enforce"
)

// version is set by the linker: -ldflags "-X main.version=…".
var version = "dev"

const usage = `usage: chatd-enforce [--dir DIRECTORY] [--idle-end]
       chatd-enforce --help | --version

Keeps the file rules of chatd's sessions. With systemd it is chatd-keeper.service; elsewhere
chatd serve starts it when none answers. It goes on while chatd is down, and needs root.

   --dir DIRECTORY  of its socket and of its records (default /run/chatd/keeper)
   --idle-end       end when no session has rules and nobody has asked for a while
   --worker         for its own use: be the process that the holder starts
   --heir           for its own use: be the holder in the place of one that ended

   chatd-enforce --dir /run/chatd/keeper

exit codes: 0 done · 1 internal · 2 invalid · 69 unsupported here · 75 another one runs
`

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

// run is main with its surroundings; it returns the exit code.
func run(args []string, out, errs io.Writer) int {
	err := start(args, out, errs)
	if err != nil {
		fmt.Fprintf(errs, "chatd-enforce: %s\n", chat.ErrorText(err))
	}
	return chat.ExitCode(err)
}

func start(args []string, out, errs io.Writer) error {
	o := enforce.Options{Errs: errs}
	flags := flag.NewFlagSet("chatd-enforce", flag.ContinueOnError)
	flags.StringVar(&o.Dir, "dir", "/run/chatd/keeper", "")
	flags.BoolVar(&o.IdleEnd, "idle-end", false, "")
	flags.BoolVar(&o.Worker, "worker", false, "")
	flags.BoolVar(&o.Heir, "heir", false, "")
	if done, err := chat.Arguments(flags, args, out, "keep file rules", usage, version); done || err != nil {
		return err
	}
	return enforce.Run(o)
}
