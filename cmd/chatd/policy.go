package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/filerules"
	"github.com/chatd/chatd/front/printer"
	"github.com/chatd/chatd/internal/config/configfile"
)

// checkAnswer is the answer of policy check --json.
type checkAnswer struct {
	File     string         `json:"file"`
	Valid    bool           `json:"valid"`
	Errors   []checkedFault `json:"errors"`
	Warnings []string       `json:"warnings"`
	Mode     filerules.Mode `json:"mode,omitempty"`
	Agents   []string       `json:"agents"`
}

type checkedFault struct {
	Place string `json:"place"`
	Key   string `json:"key"`
	Why   string `json:"why"`
}

func policyCheck(c *cli.Context) error {
	if c.NArg() != 2 || c.Args().First() != "check" {
		return chat.Invalid("cannot do policy %s: want policy check FILE",
			chat.Quote(strings.Join(c.Args().Slice(), " ")))
	}
	file := c.Args().Get(1)
	p, err := configfile.Rules(file)
	warnings := []string{}
	if err == nil {
		warnings, err = countPlaces(c.Context, file)
	}
	var faults filerules.Faults
	if err != nil && (!errors.As(err, &faults) || !c.Bool("json")) {
		return err
	}
	out := checkAnswer{File: file, Valid: err == nil, Errors: []checkedFault{}, Warnings: warnings,
		Agents: []string{}}
	for _, f := range faults {
		out.Errors = append(out.Errors, checkedFault{f.Place, f.Key, f.Why})
	}
	if p != nil {
		out.Mode = p.Mode
		out.Warnings = append(out.Warnings, p.Warnings...)
		out.Agents = append(out.Agents, p.Agents()...)
	}
	if err := answer(c, out, nil, checkedText(out)); err != nil {
		return err
	}
	if !out.Valid {
		return &exitError{2}
	}
	return nil
}

// countPlaces refuses the rules of a file that match too much of what sessions on this host share, and
// warns if nobody could look.
func countPlaces(ctx context.Context, file string) (warnings []string, err error) {
	refused, err := fromRoot[filerules.Faults](ctx, "check", configfile.Flags{}, "--policy="+file)
	if errors.Is(err, fs.ErrNotExist) {
		return []string{unchecked("whether sessions could start, and how much of this host's /usr the rules match,")}, nil
	}
	if err == nil && len(refused) > 0 {
		err = refused
	}
	return []string{}, err
}

func checkedText(out checkAnswer) (text string) {
	for _, s := range out.Warnings {
		text += fmt.Sprintf("warning: %s\n", printer.Cell(s))
	}
	return text + fmt.Sprintf("%s loads: mode %s\n", printer.Cell(out.File), out.Mode)
}
