package chat

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
)

// Patch changes an existing chat: a JSON merge patch (RFC 7396) of its labels. It keeps labels that
// it does not name.
type Patch struct {
	// Labels are new values by name; nil removes the label.
	Labels map[string]*string
	// NoLabels removes all labels before Labels are set.
	NoLabels bool
}

// maxPatched bounds the labels of one patch: it may remove a full set and set another.
const maxPatched = 2 * MaxLabels

// Validate reports the first invalid field, as [ErrInvalid].
func (p Patch) Validate() error {
	if p.Labels == nil && !p.NoLabels {
		return fmt.Errorf("cannot change nothing: want labels: %w", ErrInvalid)
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

// MarshalJSON writes the merge patch.
func (p Patch) MarshalJSON() ([]byte, error) {
	if p.NoLabels && len(p.Labels) > 0 {
		return nil, fmt.Errorf("cannot write a change that takes all labels away and sets some: %w", ErrInvalid)
	}
	doc := map[string]map[string]*string{}
	if p.NoLabels || p.Labels != nil {
		doc["labels"] = p.Labels
	}
	if p.NoLabels {
		doc["labels"] = nil
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
		if name != "labels" {
			return fmt.Errorf("unknown field %s: want labels", Quote(name))
		}
		if err := json.Unmarshal(v, &p.Labels); err != nil {
			return fmt.Errorf("labels: want an object of texts, or null for a label that goes: %w", err)
		}
		p.NoLabels = p.Labels == nil
	}
	return nil
}

// Unlike names the labels of s that the existing chat with labels lacks or has with another value.
// Create does not change a chat that it finds.
func (s Spec) Unlike(labels map[string]string) []string {
	var unlike []string
	for _, k := range slices.Sorted(maps.Keys(s.Labels)) {
		if v, ok := labels[k]; !ok || v != s.Labels[k] {
			unlike = append(unlike, "labels."+k)
		}
	}
	return unlike
}
