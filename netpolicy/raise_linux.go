package netpolicy

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// Raise makes sure that the wall stands, without knowing any policy: at boot,
// before there is a network, and at any time beside a daemon. Where nothing
// stands it writes what Apply without policies writes. Where policies stand it
// keeps them and mends what is under them: the nft table, the rules that every
// policy relies on, the jumps at the head of OUTPUT.
//
// It takes nothing away, not even a jump for other uids, and it goes on
// after a failure, for one family's wall is better than none. [Table.Drift] and
// [Table.Probe] still want an Apply.
func (t *Table) Raise(ctx context.Context) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	errs := []error{t.raiseLoopback(ctx)}
	for _, s := range t.sides {
		err := s.raiseChains(ctx)
		if err == nil {
			err = s.raiseJump(ctx, t.opts.Range)
		}
		errs = append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("cannot raise the wall for uids %s: %w", t.opts.Range, err)
	}
	return nil
}

// raiseChains rewrites the chains that hold no policy. CHATD-WHO is made where it is missing, and
// never by a ":" line, which would empty it. -N fails when a daemon made it in between. The second
// look sees it.
func (s half) raiseChains(ctx context.Context) error {
	var errs []error
	for range 2 {
		known, err := s.ipt.ChainExists("filter", whoChain)
		if err != nil {
			return fmt.Errorf("cannot look for the %s chain %s: %w", s.name, whoChain, err)
		}
		if _, err = command(ctx, raiseText(s.family, !known), s.restore, "-w", s.wait, "--noflush"); err == nil {
			return nil
		}
		errs = append(errs, err)
	}
	return fmt.Errorf("cannot write the %s chains: %w", s.name, errors.Join(errs...))
}

// raiseText is the transaction of raiseChains.
func raiseText(f family, newWho bool) string {
	rules := baseRules(f)
	chains := slices.DeleteFunc(chainsOf(rules, nil), func(c string) bool { return c == whoChain })
	if newWho {
		rules = append([]string{"-N " + whoChain}, rules...)
	}
	return transaction(chains, rules, nil)
}

// raiseJump puts this range's jump at the head of OUTPUT. A jump of another range
// stays, behind it: the chats of that range have no other wall.
func (s half) raiseJump(ctx context.Context, r Range) error {
	output, err := s.rules("OUTPUT")
	if err != nil {
		return err
	}
	wanted := "-A OUTPUT " + strings.Join(jumpSpec(r), " ")
	if len(output) > 0 && output[0] == wanted {
		return nil
	}
	return s.replaceJumps(ctx, r, slices.DeleteFunc(output, func(rule string) bool { return rule != wanted }))
}

// raiseLoopback loads the nft table where it is missing or is not what this version writes, and
// leaves it alone otherwise. Loading it again begins a new run of numbers. The destinations that a
// daemon opened stay.
func (t *Table) raiseLoopback(ctx context.Context) error {
	now, err := t.listLoopback(ctx)
	if errors.Is(err, errNoTable) {
		return t.loadLoopback(ctx, nil)
	}
	if err != nil {
		return err
	}
	form, err := t.formOfLoopback(ctx)
	if err == nil && withoutState(now) == withoutState(form) {
		return nil
	}
	// Not to know the form is no reason to fail: what is loaded has it.
	return t.loadLoopback(ctx, openedIn(now))
}

// formTable is where the table is written only to see how nft lists it. A dormant
// table meets no packet (nft(8), flags).
const formTable = "chatd-form"

// formOfLoopback is how nft on this host lists the table that chatd writes. Leftovers of an earlier
// call that was killed are deleted first, in a transaction of their own. The kernel refuses a
// dormant table that changes and gets a chain in one transaction.
func (t *Table) formOfLoopback(ctx context.Context) (form string, err error) {
	text := strings.ReplaceAll(loopbackText(t.opts, nil, firstNumber), "table inet chatd", "table inet "+formTable)
	text = strings.Replace(text, "\n", " { flags dormant; }\n", 1)
	text = strings.Replace(text, formTable+" {\n", formTable+" { flags dormant;\n", 1)
	if err := t.deleteTable(ctx, formTable); err != nil {
		return "", err
	}
	if _, err = command(ctx, text, t.nft, "-f", "-"); err == nil {
		form, err = command(ctx, "", t.nft, "-s", "-t", "list", "table", "inet", formTable)
	}
	form = dormantHead.ReplaceAllString(form, "table inet chatd {\n")
	return form, errors.Join(err, t.deleteTable(context.WithoutCancel(ctx), formTable))
}

var dormantHead = regexp.MustCompile(`^table inet ` + formTable + ` \{\n\tflags dormant\n\n?`)

var openedChain = regexp.MustCompile(`(?s)\tchain opened \{\n(.*?)\t\}\n`)

// openedIn are the destinations that the listed table lets pass unmarked.
func openedIn(listing string) []string {
	m := openedChain.FindStringSubmatch(listing)
	if m == nil {
		return nil
	}
	var rules []string
	for line := range strings.Lines(m[1]) {
		rules = append(rules, strings.TrimSpace(line))
	}
	return rules
}

// withoutState is a listing without what differs from load to load and from
// daemon to daemon.
func withoutState(listing string) string {
	return givenOffset.ReplaceAllString(openedChain.ReplaceAllString(listing, ""), "")
}
