package shims

import (
	"flag"
	"fmt"
	"io"
	"os"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/plan"
)

// runConfine reads the plan from --plan-fd and becomes its command. An error
// goes to stderr, and to the plan's ReportFD when the plan could be read.
func runConfine(args []string, errs io.Writer) int {
	flags := flag.NewFlagSet("confine", flag.ContinueOnError)
	fd := flags.Int("plan-fd", -1, "")
	if err := parse(flags, args); err != nil {
		return fail(errs, err)
	}
	if *fd < 0 {
		return fail(errs, fmt.Errorf("cannot use argument --plan-fd: want a descriptor: %w", chat.ErrInvalid))
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
