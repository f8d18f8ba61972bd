package netpolicy

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/coreos/go-iptables/iptables"

	"github.com/chatd/chatd/chat"
)

// snapshot is what the kernel held, in its own words, right after Apply.
type snapshot [2]map[string][]string

// look lists both families at the same time.
func (t *Table) look() (*snapshot, error) {
	var all snapshot
	err := t.each(func(i int, s half) (err error) {
		all[i], err = s.look()
		return err
	})
	return &all, err
}

// look lists OUTPUT and chatd's chains with their rules, as iptables -S prints them, by one
// program. A chain without rules is there with an empty list.
func (s half) look() (map[string][]string, error) {
	lines, err := s.ipt.List("filter", s.whole)
	if err != nil && !isNotExist(err) {
		return nil, fmt.Errorf("cannot list the %s chains: %w", s.name, locked(err))
	}
	return chainsIn(lines), nil
}

// chainsIn sorts the lines of iptables -S by chain: "-P CHAIN policy" and "-N CHAIN" name one,
// "-A CHAIN rule" is a rule of it.
func chainsIn(lines []string) map[string][]string {
	chains := map[string][]string{}
	for _, line := range lines {
		words := strings.Fields(line)
		if len(words) < 2 || words[1] != "OUTPUT" && !isOurs(words[1]) {
			continue
		}
		switch words[0] {
		case "-P", "-N":
			chains[words[1]] = nil // its rules follow
		case "-A":
			chains[words[1]] = append(chains[words[1]], line)
		}
	}
	return chains
}

// output lists the rules of OUTPUT. One that is gone, as after "nft flush ruleset", has none.
func (s half) output() ([]string, error) {
	list, err := s.ipt.List("filter", "OUTPUT")
	if err != nil && !isNotExist(err) {
		return nil, fmt.Errorf("cannot list the %s chain OUTPUT: %w", s.name, locked(err))
	}
	return slices.DeleteFunc(list, func(line string) bool { return !strings.HasPrefix(line, "-A ") }), nil
}

// isNotExist reports that a table or chain is not there, by the words of both backends.
func isNotExist(err error) bool {
	var e *iptables.Error
	return errors.As(err, &e) && e.IsNotExist()
}

// locked adds [chat.ErrBusy] to the error of a program that waited for the xtables lock in vain.
func locked(err error) error {
	var e *iptables.Error
	if errors.As(err, &e) && e.ExitStatus() == exitLocked {
		return errors.Join(chat.ErrBusy, err)
	}
	return err
}

// Drift says what differs from what the last successful Apply left, one sentence
// each; nothing means that the wall is as it was written. Apply with the same
// policies mends it.
func (t *Table) Drift() ([]string, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.drift()
}

func (t *Table) drift() ([]string, error) {
	if t.saved == nil {
		return []string{"The network policy has not been applied since chatd started."}, nil
	}
	now, err := t.look()
	if err != nil {
		return nil, err
	}
	var found []string
	for i, s := range t.sides {
		found = append(found, jumpDrift(s.name, now[i]["OUTPUT"], t.opts.Range)...)
		found = append(found, chainDrift(s.name, t.saved[i], now[i])...)
	}
	return found, nil
}

func jumpDrift(family string, output []string, r Range) []string {
	all := jumps(output)
	switch {
	case jumpStands(output, r):
		return nil
	case len(all) == 0:
		return []string{"The " + family + " jump from OUTPUT to CHATD is gone: chats are not walled."}
	case len(all) > 1:
		return []string{fmt.Sprintf("OUTPUT has %d %s jumps to CHATD instead of one.", len(all), family)}
	}
	return []string{"The " + family + " jump to CHATD is not as it was written at the head of OUTPUT."}
}

func chainDrift(family string, was, now map[string][]string) []string {
	var found []string
	for _, chain := range slices.Sorted(maps.Keys(was)) {
		rules, there := now[chain]
		switch {
		case chain == "OUTPUT" || slices.Equal(was[chain], rules) && there:
		case !there:
			found = append(found, fmt.Sprintf("The %s chain %s is gone.", family, chain))
		case len(rules) == 0:
			found = append(found, fmt.Sprintf("The %s chain %s was flushed.", family, chain))
		default:
			found = append(found, fmt.Sprintf("The %s chain %s was changed: %s.", family, chain,
				firstDifference(was[chain], rules)))
		}
	}
	for _, chain := range slices.Sorted(maps.Keys(now)) {
		if _, known := was[chain]; !known && isOurs(chain) {
			found = append(found, fmt.Sprintf("The %s chain %s is not one that was written.", family, chain))
		}
	}
	return found
}

func firstDifference(was, now []string) string {
	for i, rule := range was {
		switch {
		case i >= len(now):
			return fmt.Sprintf("%q is missing", rule)
		case now[i] != rule:
			return fmt.Sprintf("%q stands where %q stood", now[i], rule)
		}
	}
	return fmt.Sprintf("%q was added", now[len(was)])
}
