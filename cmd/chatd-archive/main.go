// Command chatd-archive writes the tree of a home into one stream, and makes one of it. See package
// archive.
//
// # Runs as
//
// The chat, behind its walls. It refuses to run as root: neither a home nor an archive of one is
// for root to read.
//
// # What it does not stop
//
// See package archive.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/shims/archive"
)

// version is set by the linker: -ldflags "-X main.version=…".
var version = "dev"

const usage = `usage: chatd-archive pack [KEYS] DIR >ARCHIVE
       chatd-archive check [KEYS] [BOUNDS] <ARCHIVE
       chatd-archive unpack [KEYS] [BOUNDS] DIR <ARCHIVE
       chatd-archive seal [KEYS] <FILE >SEALED
       chatd-archive open [KEYS] [BOUNDS] <SEALED >FILE
       chatd-archive clone DIR EMPTY <BYTE
       chatd-archive --help | --version

Writes the tree below DIR into one stream: tar (pax) in zstd, and that encrypted by age where
recipients are named. unpack makes the tree in DIR, which must be empty, as the user that runs it;
check reads an archive as unpack does and writes nothing. seal and open do to one file what pack and
unpack do to the tar archive. clone waits for a byte, and then makes in EMPTY, on the same file
system, what pack would keep of DIR, by reflinks (XFS, btrfs). None runs as root. Each writes one
line of JSON to standard error: the entries, the bytes and the SHA-256 of the tar archive or file,
which are equal for pack, check and unpack, and what was left out (sockets). After an error discard
what was made.

KEYS are
   --recipients FILE    age recipients, one a line: encrypt to them
   --identities FILE    age identities, one a line: decrypt with one of them
   --check-key          encrypt to one more recipient, and print its identity (check_identity): it
                        checks the archive where no identity of the others is
FILE may be -: standard input, for recipients of pack to its end; else up to its first NUL
BOUNDS are
   --max-entries N      refuse more files and directories (default 10000000)
   --max-bytes N        refuse more content, without holes (default 1 TiB)
   --max-file-size N    refuse a file that is larger, with its holes (default 16 TiB)
Any command takes
   --report             write lines of JSON to standard error: each second {"progress": {...}}, and
                        at the end {"done": {...}} or {"error": {"text", "kind"}}

exit codes: 0 done · 1 internal · 2 invalid · 3 denied · 5 exists · 8 conflict: a file changed
`

func main() { os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr, os.Geteuid())) }

// run is main with its surroundings; it returns the exit code.
func run(args []string, in io.Reader, out, errs io.Writer, uid int) int {
	if len(args) == 1 {
		switch args[0] {
		case "--help", "-h", "help":
			return said(chat.Show(out, usage), errs)
		case "--version":
			return said(chat.Show(out, "chatd-archive "+version+"\n"), errs)
		}
	}
	o, err := parse(args)
	if err == nil && uid == 0 {
		err = fmt.Errorf("cannot archive as root: run it as the owner of the files: %w",
			chat.ErrDenied)
	}
	if err != nil {
		return said(err, errs)
	}
	o.in, o.out = in, out
	if o.report {
		return reported(o, errs)
	}
	s, err := o.do()
	if err == nil {
		err = json.NewEncoder(errs).Encode(s)
	}
	return said(err, errs)
}

// said prints an error; it returns the exit code.
func said(err error, errs io.Writer) int {
	if err != nil {
		fmt.Fprintf(errs, "chatd-archive: %s\n", chat.ErrorText(err))
	}
	code, _ := kindOf(err)
	return code
}

// options are what the arguments say.
type options struct {
	verb                   string
	recipients, identities string // names of files
	checkKey, report       bool
	archive.Limits
	args []string
	in   io.Reader
	out  io.Writer
	keys string // of the recipients or identities
}

func parse(args []string) (o options, err error) {
	if len(args) == 0 {
		return o, chat.Invalid("cannot archive: no command, see chatd-archive --help")
	}
	o.verb, o.Meter = args[0], &archive.Meter{}
	flags := flag.NewFlagSet("chatd-archive", flag.ContinueOnError)
	flags.SetOutput(io.Discard) // run says it
	flags.StringVar(&o.recipients, "recipients", "", "")
	flags.StringVar(&o.identities, "identities", "", "")
	flags.BoolVar(&o.checkKey, "check-key", false, "")
	flags.BoolVar(&o.report, "report", false, "")
	flags.Int64Var(&o.Entries, "max-entries", 10_000_000, "")
	flags.Int64Var(&o.Bytes, "max-bytes", 1<<40, "")
	flags.Int64Var(&o.FileSize, "max-file-size", 16<<40, "")
	if err := flags.Parse(args[1:]); err != nil {
		return o, chat.Invalid("cannot use the arguments: %w, see chatd-archive --help", err)
	}
	o.args = flags.Args()
	if v, known := verbs[o.verb]; !known || len(o.args) != v.args {
		return o, chat.Invalid("cannot archive: %s with %d arguments, see chatd-archive --help",
			chat.Quote(o.verb), len(o.args))
	}
	return o, nil
}

// kindOf is the exit code and the name of an error's kind, as chatd's own.
func kindOf(err error) (code int, kind string) {
	switch known := chat.KindOf(err); known {
	case chat.ErrInvalid, chat.ErrDenied, chat.ErrExists:
		return chat.ExitCode(known), known.Error()
	case chat.ErrConflict:
		return 8, known.Error()
	}
	if err == nil {
		return 0, ""
	}
	return 1, "internal"
}
