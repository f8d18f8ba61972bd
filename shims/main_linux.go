package shims

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/plan"
)

const usage = `usage: chatd-shim confine --plan-fd N
       chatd-shim enter
       chatd-shim filetool
       chatd-shim pty ROWS COLS -- COMMAND [ARGUMENT…]
       chatd-shim log FIFO
       chatd-shim probe [--home DIR] [--hidden PATH] [--abstract NAME] [--pid N]
`

// Main is the program chatd-shim under its own name, with which args begin. It returns the exit
// code: of confine, which does not return on success, 125, 126 or 127 as of env(1); of probe 0
// once the answer is printed; and 125 for invalid arguments.
func Main(args []string) int {
	if len(args) > 1 {
		switch args[1] {
		case "confine":
			return runConfine(args[2:], os.Stderr)
		case "enter":
			return runEnter(args[2:], os.Stderr)
		case "filetool":
			return fileTool(args[2:])
		case "pty":
			return runPTY(args[2:], os.Stderr)
		case "probe":
			return runProbe(args[2:], os.Stdout, os.Stderr)
		}
	}
	fmt.Fprint(os.Stderr, usage)
	return 125
}

// Called is the name by which chatd-shim was called: [plan.ProgramName], or that of a program.
func Called(args []string) string {
	if len(args) == 0 {
		return plan.ProgramName
	}
	return strings.TrimPrefix(filepath.Base(args[0]), "-")
}

// options parses "--name value" and "--name=value"; a name may come more than once.
func options(args []string, names ...string) (map[string][]string, error) {
	got := map[string][]string{}
	for len(args) > 0 {
		name, value, joined := strings.Cut(args[0], "=")
		args = args[1:]
		known := false
		for _, n := range names {
			known = known || name == "--"+n
		}
		if !known {
			return nil, fmt.Errorf("cannot use argument %s: %w", chat.Quote(name), chat.ErrInvalid)
		}
		if !joined {
			if len(args) == 0 {
				return nil, fmt.Errorf("cannot use argument %s: it wants a value: %w", name, chat.ErrInvalid)
			}
			value, args = args[0], args[1:]
		}
		got[name[2:]] = append(got[name[2:]], value)
	}
	return got, nil
}

// last is the last value given, or fallback.
func last(values []string, fallback string) string {
	if len(values) == 0 {
		return fallback
	}
	return values[len(values)-1]
}

func fail(w io.Writer, err error) int {
	fmt.Fprintf(w, "chatd-shim: %v\n", err)
	return exitCode(err)
}

// runProbe prints what [Probe] found as one JSON array.
func runProbe(args []string, out, errs io.Writer) int {
	got, err := options(args, "home", "hidden", "abstract", "pid", "locked")
	if err != nil {
		return fail(errs, err)
	}
	pid, err := strconv.Atoi(last(got["pid"], "0"))
	if err != nil {
		return fail(errs, fmt.Errorf("cannot use argument --pid: %w", err))
	}
	layers := Probe(plan.ProbeSpec{
		Home: last(got["home"], os.Getenv("HOME")), Hidden: got["hidden"],
		Abstract: last(got["abstract"], ""), PID: pid, Locked: got["locked"],
	})
	if err := json.NewEncoder(out).Encode(layers); err != nil {
		return fail(errs, fmt.Errorf("cannot print the layers: %w", err))
	}
	return 0
}
