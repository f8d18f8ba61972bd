package policy

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/enforce/pathclass"
	"github.com/chatd/chatd/filerules"
)

// checkPlaces is [CheckPlaces] for these trees.
func checkPlaces(ctx context.Context, p *filerules.Policy, home string, trees []chat.Exposed) error {
	err := pathclass.Check(p, home)
	if err == nil {
		err = pathclass.CheckTrees(ctx, p, home, looked(trees))
	}
	if refused, ok := errors.AsType[pathclass.Unenforceable](err); ok {
		return filerules.Faults(refused)
	}
	return err
}

// checkAllPlaces is CheckPlaces for the policies of profiles, and takes the trees of a profile from
// trees. Rules that match too much are a [chat.ErrUnsupported]. The same rules are counted
// once in the same trees.
func checkAllPlaces(
	ctx context.Context, policies map[string]*filerules.Policy, home string,
	trees func(profile string) []chat.Exposed,
) error {
	var errs []error
	done := map[string]bool{}
	for _, name := range slices.Sorted(maps.Keys(policies)) {
		p := policies[name]
		if !pathclass.NeededBy(p) {
			continue
		}
		look := looked(trees(name))
		key := fmt.Sprintf("%s %q", p.Sum, look)
		if done[key] {
			continue
		}
		done[key] = true
		if err := pathclass.CheckTrees(ctx, p, home, look); err != nil {
			err = fmt.Errorf("cannot use the file rules of profile %s: %w", name, err)
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

func looked(trees []chat.Exposed) (all []pathclass.Tree) {
	for _, t := range trees {
		all = append(all, pathclass.Tree{Source: t.Source, At: t.Target})
	}
	return all
}

// checkPolicies refuses policies that no enforcer of this host could enforce in a home.
func checkPolicies(policies map[string]*filerules.Policy, home string) error {
	var all []error
	for _, name := range slices.Sorted(maps.Keys(policies)) {
		if err := pathclass.Check(policies[name], home); err != nil {
			all = append(all, fmt.Errorf("cannot use the file rules of profile %s: %w", name, err))
		}
	}
	return errors.Join(all...)
}

// sumOf returns a digest of each profile's file of rules, for the audit log.
func sumOf(policies map[string]*filerules.Policy) string {
	var all []string
	for _, name := range slices.Sorted(maps.Keys(policies)) {
		all = append(all, name+" sha256:"+policies[name].Sum)
	}
	return strings.Join(all, ", ")
}

// rulesForShims returns the rules of a chat's agent, compiled, without the lines of the file. It is nil
// for terse rules, which chats must not see: the kernel enforces those too.
func rulesForShims(policy *filerules.Policy, agent string) ([]byte, error) {
	rules := slices.Clone(policy.Rules(agent))
	if policy.Terse || len(rules) == 0 {
		return nil, nil
	}
	agent = cmp.Or(agent, chat.DefaultAgent)
	p := filerules.Policy{Mode: policy.Mode, ByAgent: map[string]filerules.Section{}}
	for _, r := range rules {
		r.Place = ""
		if own := p.ByAgent[agent]; r.Layer == filerules.LayerAgentRules ||
			r.Layer == filerules.LayerAgentDeny {
			r.Layer = filerules.LayerAgentRules
			own.Rules = append(own.Rules, r)
			p.ByAgent[agent] = own
			continue
		}
		r.Layer = filerules.LayerGlobalRules
		p.Global.Rules = append(p.Global.Rules, r)
	}
	compiled, err := filerules.New(p)
	if err != nil {
		return nil, fmt.Errorf("cannot write the rules of the shims: %w", err)
	}
	return compiled.Compiled(), nil
}
