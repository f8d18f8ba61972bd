package netpolicy

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
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
	var errs [2]error
	t.each(func(i int, s half) {
		lost[i], errs[i] = s.mendJump(ctx, t.last, flatten(t.opts, t.last), t.opts.Range)
	})
	found = append(lost[0], lost[1]...)
	if errors.Join(errs[:]...) == nil {
		drift, derr := t.drift()
		found = append(found, drift...)
		if derr == nil && len(drift) == 0 {
			return found, nil
		}
	}
	// If the one transaction is not enough, all steps of Apply are.
	if err := t.write(ctx, t.last); err != nil {
		return found, fmt.Errorf("cannot mend the network policy: %w", err)
	}
	return found, nil
}

// each does something for both families at the same time.
func (t *Table) each(do func(i int, s half)) {
	var all sync.WaitGroup
	for i, s := range t.sides {
		all.Go(func() { do(i, s) })
	}
	all.Wait()
}

// mendJump looks at OUTPUT alone, which is one program, and writes everything of this family
// where its jump does not stand.
func (s half) mendJump(
	ctx context.Context, policies []Policy, segments []segment, r Range,
) (found []string, err error) {
	output, err := s.rules("OUTPUT")
	if err != nil || jumpStands(output, r) {
		return nil, err
	}
	text := strings.TrimSuffix(restoreText(s.family, policies, segments, nil), "COMMIT\n") + jumpText(r,
		jumps(output)) + "COMMIT\n"
	if _, err := command(ctx, text, s.restore, "-w", s.wait, "--noflush"); err != nil {
		return nil, fmt.Errorf("cannot write the %s chains and their jump: %w", s.name, err)
	}
	return jumpDrift(s.name, output, r), nil
}

// jumpText takes rules out of OUTPUT and puts the jump at its head.
func jumpText(r Range, out []string) string {
	return deleteText(out) + "-I OUTPUT 1 " + strings.Join(jumpSpec(r), " ") + "\n"
}

// deleteText takes these rules, as iptables -S prints them, out of their chain.
func deleteText(out []string) string {
	var text strings.Builder
	for _, rule := range out {
		text.WriteString(strings.Replace(rule, "-A ", "-D ", 1) + "\n")
	}
	return text.String()
}
