package netpolicy

import (
	"context"
	"errors"
	"fmt"
)

// Mend restores rules that were changed since the last successful Apply, and returns the changes as
// [Table.Drift] does. It first restores what a chat's packet meets first: for each family that lost
// its jump, or whose jump is not the first rule any more, one transaction writes chains and jump,
// before anything else is compared.
func (t *Table) Mend(ctx context.Context) (found []string, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.saved == nil {
		return nil, errors.New("cannot mend the network policy: it has not been applied since chatd started")
	}
	var lost [2][]string
	segments := flatten(t.opts, t.last)
	err = t.each(func(i int, s half) (err error) {
		lost[i], err = s.mendJump(ctx, t.last, segments, t.opts.Range)
		return err
	})
	found = append(lost[0], lost[1]...)
	if err == nil {
		drift, err := t.drift()
		found = append(found, drift...)
		if err == nil && len(drift) == 0 {
			return found, nil
		}
	}
	// If the one transaction is not enough, all steps of Apply are.
	if err := t.write(ctx, t.last); err != nil {
		return found, fmt.Errorf("cannot mend the network policy: %w", err)
	}
	return found, nil
}

// mendJump looks at OUTPUT alone, which is one program, and writes everything of this family
// where its jump does not stand.
func (s half) mendJump(
	ctx context.Context, policies []Policy, segments []segment, r Range,
) (found []string, err error) {
	output, err := s.output()
	if err != nil || jumpStands(output, r) {
		return nil, err
	}
	text := restoreText(s.family, policies, segments, nil, jumpRules(r, jumps(output))...)
	if err := s.transact(ctx, "write the %s chains and their jump", text); err != nil {
		return nil, err
	}
	return jumpDrift(s.name, output, r), nil
}
