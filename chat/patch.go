package chat

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
)

// Patch changes an existing chat: a JSON merge patch (RFC 7396) of its labels and of its
// [EgressChange]. It keeps labels that it does not name, and replaces a list as a whole.
type Patch struct {
	// Labels are new values by name; nil removes the label.
	Labels map[string]*string
	// NoLabels removes all labels before Labels are set.
	NoLabels bool
	// EgressAdd and EgressRemove are new lists; nil keeps the old one.
	EgressAdd, EgressRemove *[]Allow
}

// ChangesEgress reports whether the patch is about egress.
func (p Patch) ChangesEgress() bool { return p.EgressAdd != nil || p.EgressRemove != nil }

// maxPatched bounds the labels of one patch: it may remove a full set and set another.
const maxPatched = 2 * MaxLabels

// Validate reports the first invalid field, as [ErrInvalid].
func (p Patch) Validate() error {
	if p.Labels == nil && !p.NoLabels && !p.ChangesEgress() {
		return fmt.Errorf("cannot change nothing: want labels, egress_add or egress_remove: %w",
			ErrInvalid)
	}
	if err := p.ApplyEgress(EgressChange{}).Validate(); err != nil {
		return err
	}
	if len(p.Labels) > maxPatched {
		return fmt.Errorf("cannot use labels: %d of them in one change, want at most %d: %w", len(p.Labels), maxPatched, ErrInvalid)
	}
	for _, k := range slices.Sorted(maps.Keys(p.Labels)) {
		if err := CheckName("labels", k); err != nil {
			return err
		}
		if v := p.Labels[k]; v != nil {
			if err := checkText("labels."+k, *v, MaxLabelValue); err != nil {
				return err
			}
		}
	}
	return nil
}

// Apply returns the labels after the patch; more than a chat may have are [ErrInvalid].
func (p Patch) Apply(labels map[string]string) (map[string]string, error) {
	after := map[string]string{}
	if !p.NoLabels {
		maps.Copy(after, labels)
	}
	for k, v := range p.Labels {
		delete(after, k)
		if v != nil {
			after[k] = *v
		}
	}
	return after, checkLabels(after)
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
	if p.NoLabels && len(p.Labels) > 0 {
		return nil, fmt.Errorf("cannot write a change that takes all labels away and sets some: %w", ErrInvalid)
	}
	doc := map[string]any{}
	if p.NoLabels || p.Labels != nil {
		doc["labels"] = p.Labels
	}
	if p.NoLabels {
		doc["labels"] = nil
	}
	if p.EgressAdd != nil {
		doc["egress_add"] = *p.EgressAdd
	}
	if p.EgressRemove != nil {
		doc["egress_remove"] = *p.EgressRemove
	}
	return json.Marshal(doc)
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

func (p *Patch) read(name string, v json.RawMessage) error {
	switch name {
	case "labels":
		if err := json.Unmarshal(v, &p.Labels); err != nil {
			return fmt.Errorf("labels: want an object of texts, or null for a label that goes: %w", err)
		}
		p.NoLabels = p.Labels == nil
		return nil
	case "egress_add", "egress_remove":
		list := []Allow{}
		if err := json.Unmarshal(v, &list); err != nil {
			return fmt.Errorf("%s: want a list of destinations, or null for none: %w", name, err)
		}
		if name == "egress_add" {
			p.EgressAdd = &list
		} else {
			p.EgressRemove = &list
		}
		return nil
	}
	return fmt.Errorf("unknown field %s: want labels, egress_add or egress_remove", Quote(name))
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
