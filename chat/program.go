package chat

import (
	"errors"
	"flag"
	"fmt"
	"io"
)

// exits are what chatd's programs exit with. 69 and 75 are EX_UNAVAILABLE and EX_TEMPFAIL of
// sysexits.h(3head).
var exits = []struct {
	of   error
	code int
}{
	{nil, 0}, {ErrInvalid, 2}, {ErrDenied, 3}, {ErrNotFound, 4}, {ErrExists, 5}, {ErrWrongPhase, 6},
	{ErrConflict, 7}, {ErrUnsupported, 69}, {ErrBusy, 75},
}

// ExitCode is what a program that failed with err exits with; 0 for nil. Of an error that is several
// of these the first counts.
func ExitCode(err error) int {
	for _, e := range exits {
		if errors.Is(err, e.of) {
			return e.code
		}
	}
	return 1
}

// Show writes what a program answers to a question.
func Show(out io.Writer, text string) error {
	if _, err := io.WriteString(out, text); err != nil {
		return fmt.Errorf("cannot write the output: %w", err)
	}
	return nil
}

// Arguments parses the command line of a program that is for doing. done: it asked for help or the
// version, which out has now.
func Arguments(
	flags *flag.FlagSet, args []string, out io.Writer, doing, usage, version string,
) (done bool, err error) {
	flags.SetOutput(io.Discard) // its program says it
	asked := flags.Bool("version", false, "")
	err = flags.Parse(args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return true, Show(out, usage)
	case err != nil:
		return true, Invalid("cannot use the arguments: %w, see %s --help", err, flags.Name())
	case flags.NArg() > 0:
		return true, Invalid("cannot %s: unexpected argument %s, see %s --help", doing, Quote(flags.Arg(0)),
			flags.Name())
	case *asked:
		return true, Show(out, flags.Name()+" version "+version+"\n")
	}
	return false, nil
}
