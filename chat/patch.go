package chat

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
)

// Patch changes an existing chat: a JSON merge patch (RFC 7396) of its labels, variables, limits,
// profile and [EgressChange]. It keeps what it does not name, and replaces a list as a whole.
type Patch struct {
	// Labels are new values by name; nil removes the label.
	Labels map[string]*string
	// NoLabels removes all labels before Labels are set.
	NoLabels bool
	// Env are new values of the chat's own variables; nil removes one. NoEnv removes all before.
	Env   map[string]*string
	NoEnv bool
	// Limits are new values of its [LimitChange]; nil is the profile's limit again. NoLimits takes
	// all of them back before.
	Limits   map[string]*json.RawMessage
	NoLimits bool
	// Profile is another profile; empty keeps the chat's.
	Profile string
	// EgressAdd and EgressRemove are new lists; nil keeps the old one.
	EgressAdd, EgressRemove *[]Allow
	// Force sets a memory_max below what the chat holds: the kernel then ends processes.
	Force bool
}

// ChangesEgress reports whether the patch is about egress.
func (p Patch) ChangesEgress() bool { return p.EgressAdd != nil || p.EgressRemove != nil }

// ChangesEnv reports whether the patch is about variables.
func (p Patch) ChangesEnv() bool { return p.NoEnv || p.Env != nil }

// ChangesLimits reports whether the patch is about limits.
func (p Patch) ChangesLimits() bool { return p.NoLimits || p.Limits != nil }

// OnlyLabels reports whether the patch is about nothing that acts on the host.
func (p Patch) OnlyLabels() bool {
	return !p.ChangesEgress() && !p.ChangesEnv() && !p.ChangesLimits() && p.Profile == ""
}

// Bounds of one patch: it may remove a full set and set another.
const (
	maxPatched    = 2 * MaxLabels
	maxPatchedEnv = 2 * MaxEnv
)

// patchFields are the members of the document.
const patchFields = "labels, env, limits, profile, egress_add or egress_remove"

// Validate reports the first invalid field, as [ErrInvalid]. What depends on the chat is checked
// when the patch is applied.
func (p Patch) Validate() error {
	if p.Labels == nil && !p.NoLabels && p.OnlyLabels() {
		return Invalid("cannot change nothing: want %s", patchFields)
	}
	_, err := p.ApplyLimits(nil).Apply(DefaultLimits())
	if err = cmp.Or(p.ApplyEgress(EgressChange{}).Validate(), checkOptional("profile", p.Profile),
		errors.Join(p.validateLabels(), p.validateEnv()), err); err != nil {
		return err
	}
	for _, key := range slices.Sorted(maps.Keys(p.Limits)) {
		if !slices.Contains(LimitKeys(), key) {
			return Invalid("cannot use limits: unknown key %s", Quote(key))
		}
	}
	return nil
}

func (p Patch) validateLabels() error {
	if len(p.Labels) > maxPatched {
		return Invalid("cannot use labels: %d of them in one change, want at most %d", len(p.Labels),
			maxPatched)
	}
	for _, k := range slices.Sorted(maps.Keys(p.Labels)) {
		value := ""
		if v := p.Labels[k]; v != nil {
			value = *v
		}
		if err := checkNote(k, value); err != nil {
			return err
		}
	}
	return nil
}

func (p Patch) validateEnv() error {
	if len(p.Env) > maxPatchedEnv {
		return Invalid("cannot use env: %d variables in one change, want at most %d", len(p.Env),
			maxPatchedEnv)
	}
	for _, k := range slices.Sorted(maps.Keys(p.Env)) {
		if err := checkEnvName(k); err != nil {
			return fmt.Errorf("cannot use env%s: %w", dotted(k), err)
		}
	}
	_, err := p.ApplyEnv(nil)
	return err
}

// Apply returns the labels after the patch; more than a chat may have are [ErrInvalid].
func (p Patch) Apply(labels map[string]string) (map[string]string, error) {
	after := merged(labels, p.NoLabels, p.Labels)
	return after, checkLabels(after)
}

// ApplyEnv returns the chat's own variables after the patch; those that it may not have are
// [ErrInvalid].
func (p Patch) ApplyEnv(env map[string]string) (map[string]string, error) {
	after := merged(env, p.NoEnv, p.Env)
	return after, checkOwnEnv(after)
}

// ApplyLimits returns the chat's change of limits after the patch, which is not checked.
func (p Patch) ApplyLimits(c LimitChange) LimitChange { return merged(c, p.NoLimits, p.Limits) }

// merged is one level of RFC 7396; none removes all that was there.
func merged[V any](old map[string]V, none bool, patch map[string]*V) map[string]V {
	after := map[string]V{}
	if !none {
		maps.Copy(after, old)
	}
	for k, v := range patch {
		delete(after, k)
		if v != nil {
			after[k] = *v
		}
	}
	return after
}

// ApplyEgress returns the change of egress after the patch.
func (p Patch) ApplyEgress(c EgressChange) EgressChange {
	if p.EgressAdd != nil {
		c.Add = slices.Clone(*p.EgressAdd)
	}
	if p.EgressRemove != nil {
		c.Remove = slices.Clone(*p.EgressRemove)
	}
	return c
}

// MarshalJSON writes the merge patch.
func (p Patch) MarshalJSON() ([]byte, error) {
	doc := map[string]any{}
	err := errors.Join(putMerge(doc, "labels", p.NoLabels, p.Labels),
		putMerge(doc, "env", p.NoEnv, p.Env), putMerge(doc, "limits", p.NoLimits, p.Limits))
	if err != nil {
		return nil, err
	}
	for _, m := range []struct {
		name  string
		there bool
		value any
	}{
		{"profile", p.Profile != "", p.Profile}, {"egress_add", p.EgressAdd != nil, p.EgressAdd},
		{"egress_remove", p.EgressRemove != nil, p.EgressRemove}, {"force", p.Force, true},
	} {
		if m.there {
			doc[m.name] = m.value
		}
	}
	return json.Marshal(doc)
}

func putMerge[V any](doc map[string]any, name string, none bool, set map[string]*V) error {
	switch {
	case none && len(set) > 0:
		return Invalid("cannot write a change that takes all %s away and sets some", name)
	case none:
		doc[name] = nil
	case set != nil:
		doc[name] = set
	}
	return nil
}

// UnmarshalJSON reads a merge patch; an unknown member, or one in another case, is an error.
func (p *Patch) UnmarshalJSON(b []byte) error {
	*p = Patch{}
	doc := map[string]json.RawMessage{}
	if err := json.Unmarshal(b, &doc); err != nil {
		return err
	}
	if bytes.Equal(b, []byte("null")) {
		return fmt.Errorf("want an object")
	}
	for name, v := range doc {
		if err := p.read(name, v); err != nil {
			return err
		}
	}
	return nil
}

func (p *Patch) read(name string, v json.RawMessage) (err error) {
	switch name {
	case "labels":
		p.Labels, p.NoLabels, err = readMerge[string](name, "texts", v)
	case "env":
		p.Env, p.NoEnv, err = readMerge[string](name, "texts", v)
	case "limits":
		p.Limits, p.NoLimits, err = readMerge[json.RawMessage](name, "limits", v)
	case "profile":
		if err = json.Unmarshal(v, &p.Profile); err != nil || p.Profile == "" {
			err = fmt.Errorf("profile: want the name of a profile")
		}
	case "egress_add":
		p.EgressAdd, err = readAllows(name, v)
	case "egress_remove":
		p.EgressRemove, err = readAllows(name, v)
	case "force":
		if err = json.Unmarshal(v, &p.Force); err != nil {
			err = fmt.Errorf("force: want true or false")
		}
	default:
		err = fmt.Errorf("unknown field %s: want %s", Quote(name), patchFields)
	}
	return err
}

func readMerge[V any](
	name, what string, v json.RawMessage,
) (set map[string]*V, none bool, err error) {
	if err := json.Unmarshal(v, &set); err != nil {
		const want = "want an object of %s, or null for what goes"
		return nil, false, fmt.Errorf("%s: "+want+": %w", name, what, err)
	}
	return set, set == nil, nil
}

func readAllows(name string, v json.RawMessage) (*[]Allow, error) {
	list := []Allow{}
	if err := json.Unmarshal(v, &list); err != nil {
		return nil, fmt.Errorf("%s: want a list of destinations, or null for none: %w", name, err)
	}
	return &list, nil
}

// Unlike names what s asks for and the existing chat has otherwise: labels that it lacks or has
// with
// another value, and its change of egress. Create does not change a chat that it finds.
func (s Spec) Unlike(labels map[string]string, egress EgressChange) []string {
	var unlike []string
	for _, k := range slices.Sorted(maps.Keys(s.Labels)) {
		if v, ok := labels[k]; !ok || v != s.Labels[k] {
			unlike = append(unlike, "labels."+k)
		}
	}
	if s.EgressAdd != nil && !slices.Equal(s.EgressAdd, egress.Add) {
		unlike = append(unlike, "egress_add")
	}
	if s.EgressRemove != nil && !slices.Equal(s.EgressRemove, egress.Remove) {
		unlike = append(unlike, "egress_remove")
	}
	return unlike
}
