package netpolicy

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Raise makes sure that the wall stands, without knowing any policy: at boot,
// before there is a network, and at any time beside a daemon. Where nothing
// stands it writes what Apply without policies writes. Where policies stand it
// keeps them and mends what is under them: the rules that every policy relies on, the
// jumps at the head of OUTPUT.
//
// It takes nothing away, not even a jump for other uids, and it goes on
// after a failure, for one family's wall is better than none. [Table.Drift] and
// [Table.Probe] still want an Apply.
func (t *Table) Raise(ctx context.Context) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	err := t.each(func(_ int, s half) error {
		if err := s.raiseChains(ctx); err != nil {
			return err
		}
		return s.raiseJump(ctx, t.opts.Range)
	})
	if err != nil {
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
			return fmt.Errorf("cannot look for the %s chain %s: %w", s.name, whoChain, locked(err))
		}
		err = s.transact(ctx, "write the %s chains", raiseText(s.family, !known))
		if err == nil {
			return nil
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
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
	output, err := s.output()
	if err != nil {
		return err
	}
	wanted := "-A OUTPUT " + strings.Join(jumpSpec(r), " ")
	if len(output) > 0 && output[0] == wanted {
		return nil
	}
	return s.replaceJumps(ctx, r, slices.DeleteFunc(output, func(rule string) bool { return rule != wanted }))
}
