package policy

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/filerules"
	"github.com/chatd/chatd/internal/plan"
	"github.com/chatd/chatd/internal/sys"
)

// Next is a policy that is not in force yet.
type Next struct {
	rules map[string]*filerules.Policy
	keys  keySet
}

// Detail returns digests of the rules and keys, for the audit log.
func (n Next) Detail() map[string]string {
	return map[string]string{"rules": sumOf(n.rules), "guards": n.keys.sum()}
}

// CheckFirst takes the keys of the profiles, and refuses file rules that no enforcer of this host
// could enforce, except those that match too much: see [InForce.Count].
func (p *InForce) CheckFirst() error {
	keys, err := keySetOf(p.opt.Profiles)
	p.keys.Store(&keys)
	if err == nil {
		err = checkPolicies(p.opt.Rules, p.opt.Home)
	}
	if err == nil {
		p.warn(p.opt.Rules)
	}
	return err
}

// warn logs rules that load and are probably mistakes, each warning once.
func (p *InForce) warn(rules map[string]*filerules.Policy) {
	said := map[string]bool{}
	for _, name := range slices.Sorted(maps.Keys(rules)) {
		for _, w := range rules[name].Warnings {
			if !said[w] {
				said[w] = true
				p.opt.Log.Warn("file rules", "profile", name, "warning", w)
			}
		}
	}
}

// Count refuses the file rules that chatd was started with if they match more paths of the trees
// that sessions share than one session can mask. It reads all of /usr, and takes long.
func (p *InForce) Count(ctx context.Context) error { return p.count(ctx, p.opt.Rules) }

func (p *InForce) count(ctx context.Context, rules map[string]*filerules.Policy) error {
	return checkAllPlaces(ctx, rules, p.opt.Home, p.opt.Trees)
}

// CheckPlaces refuses rules with which no session could start, and those that match more paths of what
// every session on this host sees than one session can mask, as far as this user may read them. Its
// error is [filerules.Faults]. home is an example of the homes that the rules are for.
func CheckPlaces(ctx context.Context, rules *filerules.Policy, home string) error {
	return checkPlaces(ctx, rules, home, SystemTrees())
}

// SystemTrees returns the trees of the host that every session sees.
func SystemTrees() (trees []chat.Exposed) {
	for _, dir := range plan.SystemTrees() {
		trees = append(trees, chat.Exposed{Source: dir, Target: dir, Mode: chat.ReadOnly})
	}
	return trees
}

// WithRules returns the policy in force with other file rules.
func (p *InForce) WithRules(rules map[string]*filerules.Policy) Next {
	return Next{rules, *p.keys.Load()}
}

// WithProfiles returns the policy of other file rules and the keys of profiles. It refuses keys
// that cannot be used, and profiles without one that chatd was started with.
func (p *InForce) WithProfiles(
	rules map[string]*filerules.Policy, profiles map[string]chat.Profile,
) (Next, error) {
	keys, err := newKeySet(p.opt.Profiles, profiles)
	return Next{rules, keys}, err
}

// ProfileIn returns a profile as it would be with n in force.
func (p *InForce) ProfileIn(n Next, name string) chat.Profile {
	return n.keys.in(p.opt.Profiles[name], name)
}

// Check refuses a policy whose file rules could not be enforced. Chats are those that exist: if one
// of them needs the enforcer, it is started.
func (p *InForce) Check(ctx context.Context, n Next, chats []Chat) error {
	if err := checkPolicies(n.rules, p.opt.Home); err != nil {
		return err
	}
	return errors.Join(p.count(ctx, n.rules), p.raise(ctx, newBook(n.rules), chats))
}

// Set puts a policy in force, for what begins from now on.
func (p *InForce) Set(n Next) {
	p.warn(n.rules)
	p.SetRules(n.rules)
	p.keys.Store(&n.keys)
}

// Raise starts the enforcer if one of these chats needs it: those that exist, so that a host that
// cannot enforce their rules reports that at start and not at a wake, or one that is to be made,
// which could never be woken. A profile without chats needs no enforcer: chatd ships profiles with
// rules, and not every host can enforce rules.
func (p *InForce) Raise(ctx context.Context, chats []Chat) error {
	return p.raise(ctx, p.book.Load(), chats)
}

func (p *InForce) raise(ctx context.Context, b *book, chats []Chat) error {
	for _, c := range chats {
		if b.needed(c.Profile, c.Agent) {
			err := p.enforcer.Start(ctx)
			if err != nil {
				err = fmt.Errorf("cannot use the file rules of profile %s: %w", c.Profile, err)
			}
			return err
		}
	}
	return nil
}

// Unwatched returns a sentence for each directory on whose file system file rules are weaker,
// because the kernel does not report the names made there. A directory that is not there has none.
func (p *InForce) Unwatched(dirs ...string) (found []string) {
	if len(p.EnforcedProfiles()) == 0 {
		return nil
	}
	for _, dir := range dirs {
		err := sys.TryNames(dir)
		if err == nil || errors.Is(err, os.ErrNotExist) || errors.Is(err, os.ErrPermission) {
			continue
		}
		found = append(found, fmt.Sprintf("file rules are weaker below %s: the kernel reports no "+
			"names there (%v), so a chat can rename what another makes under a denied name before "+
			"anybody opens it; use ext4, XFS or tmpfs, such as a volume", dir, err))
	}
	return found
}

// Findings starts the enforcer if any profile has rules for it, even before a chat needs it. If
// that fails, the finding names the profiles in which this host can make no chats.
func (p *InForce) Findings(ctx context.Context) []string {
	names := p.EnforcedProfiles()
	if len(names) == 0 {
		return nil
	}
	if err := p.enforcer.Start(ctx); err != nil {
		return []string{fmt.Sprintf("no chat with file rules can be made, in profiles %s: %v",
			strings.Join(names, ", "), err)}
	}
	return nil
}
