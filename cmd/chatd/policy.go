package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/chatd/chatd/access"
	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/keeper"
)

func policyCommand() *cli.Command {
	return &cli.Command{
		Name:      "policy",
		Usage:     "check a file of rules",
		ArgsUsage: "check FILE",
		Description: "Prints every error of the file at once, with its line and what was expected, and exits 2: also\n" +
			"rules that no session could start with, and those that match too many places in this host's /usr. Of a file without errors, what loads but is probably not meant. Needs no daemon and no root.\n\n" +
			"   chatd policy check /etc/chatd/access.yaml\n" +
			"   chatd policy check rules.json5 --json",
		Action: policyCheck,
	}
}

// checked is the answer of policy check --json.
type checked struct {
	File     string         `json:"file"`
	Valid    bool           `json:"valid"`
	Errors   []checkedFault `json:"errors"`
	Warnings []string       `json:"warnings"`
	Mode     access.Mode    `json:"mode,omitempty"`
	Agents   []string       `json:"agents"`
}

type checkedFault struct {
	Place string `json:"place"`
	Key   string `json:"key"`
	Why   string `json:"why"`
}

func policyCheck(c *cli.Context) error {
	if c.NArg() != 2 || c.Args().First() != "check" {
		return fmt.Errorf("cannot do policy %s: want policy check FILE: %w", chat.Quote(strings.Join(c.Args().Slice(), " ")), chat.ErrInvalid)
	}
	file := c.Args().Get(1)
	p, err := readPolicy(file)
	if err == nil {
		err = keepable(c.Context, p)
	}
	var faults access.Faults
	if err != nil && (!errors.As(err, &faults) || !c.Bool("json")) {
		return err
	}
	out := checked{File: file, Valid: err == nil, Errors: []checkedFault{}, Warnings: []string{}, Agents: []string{}}
	for _, f := range faults {
		out.Errors = append(out.Errors, checkedFault{f.Place, f.Key, f.Why})
	}
	if p != nil {
		out.Mode = p.Mode
		out.Warnings = append(out.Warnings, p.Warnings()...)
		out.Agents = append(out.Agents, p.Agents()...)
	}
	if err := answer(c, out, func(w io.Writer) error { return writeChecked(w, out) }); err != nil {
		return err
	}
	if !out.Valid {
		return &exitError{2}
	}
	return nil
}

// checkPlaces refuses rules that match too much of what sessions on this host share. The host
// of another system has no sessions.
var checkPlaces = func(context.Context, *access.Policy, string) error { return nil }

// keepable refuses rules that no session could start with, as the daemon does when it
// reads them: in a home where those of the default config are.
func keepable(ctx context.Context, p *access.Policy) error {
	defaults, err := parseSource(defaultsName, defaultsYAML)
	if err != nil {
		return err
	}
	cfg, err := merge([]source{defaults})
	if err != nil {
		return err
	}
	home := filepath.Join(cfg.Homes, "0000000000000000")
	if err = keeper.Check(p, home); err == nil {
		err = checkPlaces(ctx, p, home)
	}
	var bad keeper.Unkeepable
	if !errors.As(err, &bad) {
		return err
	}
	return access.Faults(bad)
}

func writeChecked(w io.Writer, out checked) error {
	for _, s := range out.Warnings {
		if _, err := fmt.Fprintf(w, "warning: %s\n", cell(s)); err != nil {
			return fmt.Errorf("cannot write the output: %w", err)
		}
	}
	if _, err := fmt.Fprintf(w, "%s loads: mode %s\n", cell(out.File), out.Mode); err != nil {
		return fmt.Errorf("cannot write the output: %w", err)
	}
	return nil
}

func readPolicy(file string) (*access.Policy, error) {
	text, err := readTextFile(file)
	if err != nil {
		return nil, fmt.Errorf("cannot read the policy: %w: %w", err, chat.ErrInvalid)
	}
	return access.Load(file, text)
}

// readAccess reads the file of rules of each profile that names one; one that wants the
// default rules alone has those.
func readAccess(cfg Config) (map[string]*access.Policy, error) {
	policies := map[string]*access.Policy{}
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(cfg.Profiles)) {
		file := cfg.Profiles[name].AccessFile
		if file == "" {
			if cfg.Profiles[name].Defaults {
				policies[name] = access.Defaults()
			}
			continue
		}
		policy, err := readPolicy(file)
		if err != nil {
			errs = append(errs, fmt.Errorf("cannot use the rules of profile %s: %w", name, err))
		}
		policies[name] = policy
		if err := adoptGuard(cfg, name, policy); err != nil {
			errs = append(errs, err)
		}
	}
	return policies, errors.Join(errs...)
}
