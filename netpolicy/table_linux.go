package netpolicy

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/coreos/go-iptables/iptables"

	"github.com/chatd/chatd/chat"
)

// tools are the programs of one iptables backend.
type tools struct{ iptables, ip6tables, restore4, restore6 string }

var hostTools = tools{"iptables", "ip6tables", "iptables-restore", "ip6tables-restore"}

// half is one family's side of the wall.
type half struct {
	family
	ipt     *iptables.IPTables
	restore string
	wait    string // seconds that each call waits for the xtables lock
}

// Table is the wall of this network namespace. Its methods may be called from
// several goroutines; they take turns.
type Table struct {
	opts  Options
	sides [2]half

	mu    sync.Mutex
	last  []Policy
	saved *snapshot
}

// Open finds the programs and changes nothing. The error is [chat.ErrInvalid] for invalid options
// and [chat.ErrUnsupported], with what to install, when a program is missing or does not answer.
func Open(o Options) (*Table, error) { return open(o, hostTools) }

func open(o Options, t tools) (*Table, error) {
	if o.Range.Low == 0 || o.Range.Low > o.Range.High || o.Range.High == ^uint32(0) ||
		!o.Range.Contains(o.ProbeUID) {
		return nil, chat.Invalid("cannot open the network policy: uids %s with probe uid %d: want a range without 0 and %d, and the probe uid inside it",
			o.Range, o.ProbeUID, ^uint32(0))
	}
	for _, name := range []*string{&t.iptables, &t.ip6tables, &t.restore4, &t.restore6} {
		path, err := exec.LookPath(*name)
		if err != nil {
			return nil, fmt.Errorf("cannot find %s: install the package iptables: %w: %w", *name,
				chat.ErrUnsupported, err)
		}
		*name = path
	}
	seconds := int(cmp.Or(o.LockWait, lockWait).Seconds())
	v4, err4 := iptables.New(iptables.Path(t.iptables), iptables.IPFamily(iptables.ProtocolIPv4),
		iptables.Timeout(seconds))
	v6, err6 := iptables.New(iptables.Path(t.ip6tables), iptables.IPFamily(iptables.ProtocolIPv6),
		iptables.Timeout(seconds))
	if err := errors.Join(err4, err6); err != nil {
		return nil, fmt.Errorf("cannot use %s and %s: %w: %w", t.iptables, t.ip6tables,
			chat.ErrUnsupported, err)
	}
	return &Table{opts: o, sides: [2]half{
		{ipv4, v4, t.restore4, strconv.Itoa(seconds)}, {ipv6, v6, t.restore6, strconv.Itoa(seconds)}}}, nil
}

// Apply makes the kernel hold exactly these policies. It may be repeated. Both families change or
// neither. Texts are tried first (iptables-restore --test), and when the second still fails the
// first goes back to the policies before, or to the wall that allows nothing if there were none. At
// no moment is a packet checked by less than one of the two. The error is [chat.ErrInvalid] for
// policies that cannot be meant.
func (t *Table) Apply(ctx context.Context, policies []Policy) error {
	if err := check(t.opts, policies); err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.test(ctx, policies); err != nil {
		return fmt.Errorf("cannot apply egress policies, nothing was changed: %w", err)
	}
	if err := t.write(ctx, policies); err != nil {
		// The rollback must not end with the caller's context.
		back := t.write(context.WithoutCancel(ctx), t.last)
		return fmt.Errorf("cannot apply egress policies: %w", errors.Join(err, back))
	}
	t.last = slices.Clone(policies)
	return nil
}

func (t *Table) test(ctx context.Context, policies []Policy) error {
	segments := flatten(t.opts, policies)
	return t.each(func(_ int, s half) error {
		return s.transact(ctx, "use the %s rules", restoreText(s.family, policies, segments, nil), "--test")
	})
}

func (t *Table) write(ctx context.Context, policies []Policy) error {
	segments := flatten(t.opts, policies)
	var there [2]map[string][]string
	err := t.each(func(i int, s half) (err error) {
		if there[i], err = s.look(); err == nil {
			err = s.writeChains(ctx, policies, segments, there[i])
		}
		return err
	})
	if err != nil {
		return err
	}
	err = t.each(func(i int, s half) error { return s.writeJump(ctx, t.opts.Range, there[i]["OUTPUT"]) })
	if err != nil {
		return err
	}
	saved, err := t.look()
	if err == nil {
		t.saved = saved
	}
	return err
}

// each does something for both families at the same time.
func (t *Table) each(do func(i int, s half) error) error {
	var errs [2]error
	var all sync.WaitGroup
	for i, s := range t.sides {
		all.Go(func() { errs[i] = do(i, s) })
	}
	all.Wait()
	return errors.Join(errs[:]...)
}

// transact changes the rules that a restore text names, all or none; what, with the family's name,
// says for what.
func (s half) transact(ctx context.Context, what, text string, options ...string) error {
	args := append([]string{"-w", s.wait, "--noflush"}, options...)
	if err := command(ctx, text, s.restore, args...); err != nil {
		return fmt.Errorf("cannot "+what+": %w", s.name, err)
	}
	return nil
}

// writeChains replaces the content of every chain of chatd in one transaction, and deletes those
// that are there and not wanted.
func (s half) writeChains(
	ctx context.Context, policies []Policy, segments []segment, there map[string][]string,
) error {
	wanted := restoreText(s.family, policies, segments, nil)
	var stale []string
	for chain := range there {
		if isOurs(chain) && !strings.Contains(wanted, "\n:"+chain+" ") {
			stale = append(stale, chain)
		}
	}
	slices.Sort(stale)
	return s.transact(ctx, "write the %s chains", restoreText(s.family, policies, segments, stale))
}

func jumpSpec(r Range) []string {
	return []string{"-m", "owner", "--uid-owner", r.String(), "-j", chainPrefix}
}

// jumps are the rules of OUTPUT that lead to CHATD, as iptables -S prints them.
func jumps(output []string) []string {
	return slices.DeleteFunc(slices.Clone(output), func(r string) bool {
		return !strings.HasSuffix(r, " -j "+chainPrefix)
	})
}

// jumpStands reports whether the one jump is the first rule of OUTPUT: behind
// another firewall's accept it would be no wall.
func jumpStands(output []string, r Range) bool {
	wanted := "-A OUTPUT " + strings.Join(jumpSpec(r), " ")
	return len(output) > 0 && output[0] == wanted && len(jumps(output)) == 1
}

// writeJump puts the jump at the head of OUTPUT, whose rules these are. One that stands elsewhere
// is taken out and put in by one transaction, so that the wall is never without it.
func (s half) writeJump(ctx context.Context, r Range, output []string) error {
	if jumpStands(output, r) {
		return nil
	}
	return s.replaceJumps(ctx, r, jumps(output))
}

// replaceJumps takes rules of OUTPUT out and puts the jump at its head, in one
// transaction.
func (s half) replaceJumps(ctx context.Context, r Range, out []string) error {
	return s.transact(ctx, "put the %s jump at the head of OUTPUT", transaction(nil, jumpRules(r, out), nil))
}

// jumpRules take rules out of OUTPUT and put the jump at its head.
func jumpRules(r Range, out []string) []string {
	return append(deletions(out), "-I OUTPUT 1 "+strings.Join(jumpSpec(r), " "))
}

// deletions take these rules, as iptables -S prints them, out of their chain.
func deletions(out []string) (rules []string) {
	for _, rule := range out {
		rules = append(rules, strings.Replace(rule, "-A ", "-D ", 1))
	}
	return rules
}

// Remove takes every rule and chain of chatd away; after it chats are not
// walled. It may be repeated, and goes on after a failure, which it returns.
func (t *Table) Remove(ctx context.Context) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.last, t.saved = nil, nil
	return t.each(func(_ int, s half) error {
		there, err := s.look()
		if err != nil {
			return err
		}
		jumps := jumps(there["OUTPUT"])
		delete(there, "OUTPUT")
		if len(there)+len(jumps) == 0 {
			return nil
		}
		chains := slices.Sorted(maps.Keys(there))
		return s.transact(ctx, "remove the %s rules", transaction(nil, deletions(jumps), chains))
	})
}

func isOurs(chain string) bool {
	return chain == chainPrefix || strings.HasPrefix(chain, chainPrefix+"-")
}
