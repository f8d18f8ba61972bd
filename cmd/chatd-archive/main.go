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
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/chatd/chatd/archive"
	"github.com/chatd/chatd/chat"
)

// version is set by the linker: -ldflags "-X main.version=…".
var version = "dev"

const usage = `usage: chatd-archive pack [--recipients FILE] DIR >ARCHIVE
       chatd-archive check [--identities FILE] [BOUNDS] <ARCHIVE
       chatd-archive unpack [--identities FILE] [BOUNDS] DIR <ARCHIVE
       chatd-archive --help | --version

Writes the tree below DIR into one stream: tar (pax) in zstd, and that encrypted by age where
recipients are named. unpack makes the tree in DIR, which must be empty, as the user that runs it;
check reads an archive as unpack does and writes nothing. Neither runs as root. Each writes one line
of JSON to standard error: the entries, the bytes and the SHA-256 of the tar archive, which are
equal for pack, check and unpack, and what pack left out (sockets). After an error discard what was
made.

   --recipients FILE    age recipients, one a line: encrypt to them
   --identities FILE    age identities, one a line: decrypt with one of them
BOUNDS are
   --max-entries N      refuse more files and directories (default 10000000)
   --max-bytes N        refuse more content, without holes (default 1 TiB)
   --max-file-size N    refuse a file that is larger, with its holes (default 16 TiB)

exit codes: 0 done · 1 internal · 2 invalid · 3 denied · 5 exists · 8 conflict: a file changed
`

func main() { os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr, os.Geteuid())) }

// run is main with its surroundings; it returns the exit code.
func run(args []string, in io.Reader, out, errs io.Writer, uid int) int {
	err := start(args, in, out, errs, uid)
	if err != nil {
		fmt.Fprintf(errs, "chatd-archive: %s\n", chat.ErrorText(err))
	}
	return exitCode(err)
}

// options are what the arguments say.
type options struct {
	recipients, identities string // names of files
	archive.Limits
	args []string
}

func start(args []string, in io.Reader, out, errs io.Writer, uid int) error {
	if len(args) == 0 {
		return fmt.Errorf("cannot archive: no command, see chatd-archive --help: %w",
			chat.ErrInvalid)
	}
	switch args[0] {
	case "--help", "-h", "help":
		return show(out, usage)
	case "--version":
		return show(out, "chatd-archive "+version+"\n")
	}
	o, err := parse(args[1:])
	if err != nil {
		return err
	}
	if uid == 0 {
		return fmt.Errorf("cannot archive as root: run it as the owner of the files: %w",
			chat.ErrDenied)
	}
	var s archive.Summary
	switch verb := args[0]; {
	case verb == "pack" && len(o.args) == 1:
		s, err = pack(o, out)
	case verb == "check" && len(o.args) == 0:
		s, err = check(o, in)
	case verb == "unpack" && len(o.args) == 1:
		s, err = unpack(o, in)
	default:
		return fmt.Errorf("cannot archive: %s with %d arguments, see chatd-archive --help: %w",
			chat.Quote(verb), len(o.args), chat.ErrInvalid)
	}
	if err != nil {
		return err
	}
	return json.NewEncoder(errs).Encode(s)
}

func show(out io.Writer, text string) error {
	_, err := io.WriteString(out, text)
	return err
}

func parse(args []string) (o options, err error) {
	flags := flag.NewFlagSet("chatd-archive", flag.ContinueOnError)
	flags.SetOutput(io.Discard) // run says it
	flags.StringVar(&o.recipients, "recipients", "", "")
	flags.StringVar(&o.identities, "identities", "", "")
	flags.Int64Var(&o.Entries, "max-entries", 10_000_000, "")
	flags.Int64Var(&o.Bytes, "max-bytes", 1<<40, "")
	flags.Int64Var(&o.FileSize, "max-file-size", 16<<40, "")
	if err := flags.Parse(args); err != nil {
		return o, fmt.Errorf("cannot use the arguments: %w, see chatd-archive --help: %w", err,
			chat.ErrInvalid)
	}
	o.args = flags.Args()
	return o, nil
}

// maxKeys bounds a file of recipients or identities, in bytes.
const maxKeys = 1 << 20

// keys reads a file of recipients or identities.
func keys(name string) (string, error) {
	if name == "" {
		return "", nil
	}
	f, err := os.Open(name)
	if err != nil {
		return "", fmt.Errorf("cannot read the keys: %w: %w", err, chat.ErrInvalid)
	}
	text, err := io.ReadAll(io.LimitReader(f, maxKeys))
	if err = errors.Join(err, f.Close()); err != nil {
		return "", fmt.Errorf("cannot read the keys: %w", err)
	}
	if strings.TrimSpace(string(text)) == "" { // it must not mean "not encrypted"
		return "", fmt.Errorf("cannot read the keys: %s is empty: %w", chat.Quote(name),
			chat.ErrInvalid)
	}
	return string(text), nil
}

func pack(o options, out io.Writer) (s archive.Summary, err error) {
	to, err := keys(o.recipients)
	if err != nil {
		return s, err
	}
	return inside(o.args[0], func(dir *os.File) (archive.Summary, error) {
		return archive.Pack(dir, out, to)
	})
}

func check(o options, in io.Reader) (s archive.Summary, err error) {
	with, err := keys(o.identities)
	if err != nil {
		return s, err
	}
	return archive.Check(in, with, o.Limits)
}

func unpack(o options, in io.Reader) (s archive.Summary, err error) {
	with, err := keys(o.identities)
	if err != nil {
		return s, err
	}
	return inside(o.args[0], func(dir *os.File) (archive.Summary, error) {
		return archive.Unpack(dir, in, with, o.Limits)
	})
}

// inside calls act with the open directory.
func inside(
	name string, act func(*os.File) (archive.Summary, error),
) (s archive.Summary, err error) {
	dir, err := os.Open(name)
	if err != nil {
		return s, fmt.Errorf("cannot open the directory: %w: %w", err, chat.ErrInvalid)
	}
	s, err = act(dir)
	return s, errors.Join(err, dir.Close())
}

// exitCode is the code of an error's kind, as chatd's own.
func exitCode(err error) int {
	for _, c := range []struct {
		kind error
		code int
	}{
		{nil, 0}, {chat.ErrInvalid, 2}, {chat.ErrDenied, 3}, {chat.ErrExists, 5},
		{chat.ErrConflict, 8},
	} {
		if errors.Is(err, c.kind) {
			return c.code
		}
	}
	return 1
}
