package shims

import (
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
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
			return runFileTool(args[2:], os.Stdin, os.Stdout, os.Stderr)
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

// parse reads the options of a command, which takes nothing else.
func parse(flags *flag.FlagSet, args []string) error {
	flags.SetOutput(io.Discard)
	err := flags.Parse(args)
	if err == nil && flags.NArg() > 0 {
		err = fmt.Errorf("cannot use argument %s", chat.Quote(flags.Arg(0)))
	}
	if err != nil {
		return chat.Invalid("%w", err)
	}
	return nil
}

func fail(w io.Writer, err error) int {
	fmt.Fprintf(w, "chatd-shim: %v\n", err)
	return exitCode(err)
}

// runProbe prints what [Probe] found as one JSON array.
func runProbe(args []string, out, errs io.Writer) int {
	var spec plan.ProbeSpec
	flags := flag.NewFlagSet("probe", flag.ContinueOnError)
	flags.StringVar(&spec.Home, "home", os.Getenv("HOME"), "")
	flags.StringVar(&spec.Abstract, "abstract", "", "")
	flags.IntVar(&spec.PID, "pid", 0, "")
	for name, to := range map[string]*[]string{"hidden": &spec.Hidden, "locked": &spec.Locked} {
		flags.Func(name, "", func(v string) error {
			*to = append(*to, v)
			return nil
		})
	}
	if err := parse(flags, args); err != nil {
		return fail(errs, err)
	}
	if err := json.NewEncoder(out).Encode(Probe(spec)); err != nil {
		return fail(errs, fmt.Errorf("cannot print the layers: %w", err))
	}
	return 0
}

// runConfine reads the plan from --plan-fd and becomes its command. An error
// goes to stderr, and to the plan's ReportFD when the plan could be read.
func runConfine(args []string, errs io.Writer) int {
	flags := flag.NewFlagSet("confine", flag.ContinueOnError)
	fd := flags.Int("plan-fd", -1, "")
	if err := parse(flags, args); err != nil {
		return fail(errs, err)
	}
	if *fd < 0 {
		return fail(errs, chat.Invalid("cannot use argument --plan-fd: want a descriptor"))
	}
	file := os.NewFile(uintptr(*fd), "plan")
	todo, err := plan.ReadPlan(file)
	if err != nil {
		return fail(errs, err)
	}
	if err := file.Close(); err != nil {
		return fail(errs, fmt.Errorf("cannot close the plan: %w", err))
	}
	return fail(errs, Confine(todo))
}
