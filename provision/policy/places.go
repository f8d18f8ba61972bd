package policy

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

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
	var refused pathclass.Unenforceable
	if errors.As(err, &refused) {
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
