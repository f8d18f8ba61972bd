package policy

import (
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/enforce/pathclass"
	"github.com/chatd/chatd/filerules"
)

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
		_, text := policies[name].Source()
		all = append(all, fmt.Sprintf("%s sha256:%x", name, sha256.Sum256(text)))
	}
	return strings.Join(all, ", ")
}

// rulesForShims returns the file rules of a chat's agent as a file of rules. It is empty for terse
// rules, which chats must not see: the kernel enforces those too.
func rulesForShims(policy *filerules.Policy, agent string) (string, error) {
	if policy.Terse {
		return "", nil
	}
	type object map[string]any
	rules := map[bool][]object{true: {}, false: {}}
	for _, r := range policy.Rules(agent) {
		own := r.Layer == filerules.LayerAgentRules || r.Layer == filerules.LayerAgentDeny
		rules[own] = append(rules[own], object{string(r.Effect): r.Pattern, "ops": r.Ops.Names()})
	}
	if len(rules[true])+len(rules[false]) == 0 {
		return "", nil
	}
	shared := object{"mode": policy.Mode, "useDefaults": false, "rules": rules[false]}
	own := object{"access": object{"rules": rules[true]}}
	agents := object{cmp.Or(agent, chat.DefaultAgent): own}
	b, err := json.Marshal(object{"access": shared, "agents": agents})
	if err != nil {
		return "", fmt.Errorf("cannot write the rules of the shims: %w", err)
	}
	return string(b), nil
}
