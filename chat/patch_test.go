package chat

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
)

// TestPatch: a patch changes labels as RFC 7396 defines.
func TestPatch(t *testing.T) {
	before := map[string]string{"a": "1", "b": "2"}
	for text, want := range map[string]map[string]string{
		`{"labels":{"a":"3"}}`:               {"a": "3", "b": "2"},
		`{"labels":{"a":null}}`:              {"b": "2"},
		`{"labels":{"c":"","a":null}}`:       {"b": "2", "c": ""},
		`{"labels":{"none":null}}`:           {"a": "1", "b": "2"},
		`{"labels":{}}`:                      {"a": "1", "b": "2"},
		`{"labels":null}`:                    {},
		` { "labels" : { "b" : "\u00e9" } }`: {"a": "1", "b": "é"},
	} {
		var p, again Patch
		if err := errors.Join(json.Unmarshal([]byte(text), &p), p.Validate()); err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		got, err := p.Apply(before)
		if err != nil || !maps.Equal(got, want) {
			t.Errorf("%s: %v, %v", text, got, err)
		}
		b, err := json.Marshal(p)
		if err := errors.Join(err, json.Unmarshal(b, &again)); err != nil {
			t.Errorf("%s: %s: %v", text, b, err)
		}
		if got, err := again.Apply(before); err != nil || !maps.Equal(got, want) {
			t.Errorf("%s, written and read again as %s: %v, %v", text, b, got, err)
		}
	}
	if len(before) != 2 || before["a"] != "1" {
		t.Errorf("the labels of before are changed: %v", before)
	}
}

func TestPatchRefuses(t *testing.T) {
	for _, text := range []string{`{}`, `null`, `[]`, `{"labels":[]}`, `{"labels":{"a":1}}`, `{"Labels":{"a":"1"}}`, `{"labels":{},"owner":"web"}`,
		`{"labels":{"../a":"1"}}`, `{"labels":{"-a":null}}`, `{"labels":{"a":"` + strings.Repeat("x", MaxLabelValue+1) + `"}}`, `{"labels":{"a":"\u0000"}}`} {
		var p Patch
		if err := json.Unmarshal([]byte(text), &p); err == nil && p.Validate() == nil {
			t.Errorf("%s is taken: %+v", text, p)
		}
	}
	many := Patch{Labels: map[string]*string{}}
	value := "x"
	for i := range MaxLabels + 1 {
		many.Labels[fmt.Sprint("k", i)] = &value
	}
	if _, err := many.Apply(nil); !errors.Is(err, ErrInvalid) {
		t.Errorf("%d labels: %v", len(many.Labels), err)
	}
	for i := range maxPatched + 1 {
		many.Labels[fmt.Sprint("k", i)] = nil
	}
	if err := many.Validate(); !errors.Is(err, ErrInvalid) {
		t.Errorf("%d labels to take away: %v", len(many.Labels), err)
	}
	both := Patch{NoLabels: true, Labels: map[string]*string{"a": &value}}
	if _, err := json.Marshal(both); !errors.Is(err, ErrInvalid) {
		t.Errorf("no labels and one: %v", err)
	}
}

func TestUnlike(t *testing.T) {
	s := Spec{Labels: map[string]string{"a": "1", "b": "2", "c": "3"}}
	if got := s.Unlike(map[string]string{"a": "1", "b": "1", "d": "4"},
		EgressChange{}); !slices.Equal(got, []string{"labels.b", "labels.c"}) {
		t.Errorf("%v", got)
	}
	if got := (Spec{}).Unlike(map[string]string{"a": "1"}, EgressChange{}); got != nil {
		t.Errorf("nothing asked for: %v", got)
	}
}

// TestPatchOfEverything: what RFC 7396 says holds of variables and limits too, and a document is
// the same once it was written and read again.
func TestPatchOfEverything(t *testing.T) {
	env := map[string]string{"A": "1", "B": "2"}
	limits := raw(map[string]string{"pids_max": "100", "nofile": "2048"})
	for text, want := range map[string]string{
		`{"env":{"A":null,"C":"3"}}`:                       `{"B":"2","C":"3"} {"nofile":2048,"pids_max":100}`,
		`{"env":null}`:                                     `{} {"nofile":2048,"pids_max":100}`,
		`{"limits":{"pids_max":null}}`:                     `{"A":"1","B":"2"} {"nofile":2048}`,
		`{"limits":{"cpu_quota":"1s"},"force":true}`:       `{"A":"1","B":"2"} {"cpu_quota":"1s","nofile":2048,"pids_max":100}`,
		`{"limits":null,"env":{},"profile":"web"}`:         `{"A":"1","B":"2"} {}`,
		`{"profile":"web"}`:                                `{"A":"1","B":"2"} {"nofile":2048,"pids_max":100}`,
		`{"limits":{"pids_max":17,"memory_max":16777216}}`: `{"A":"1","B":"2"} {"memory_max":16777216,"nofile":2048,"pids_max":17}`,
	} {
		var p, again Patch
		if err := errors.Join(json.Unmarshal([]byte(text), &p), p.Validate()); err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		b, err := json.Marshal(p)
		if err := errors.Join(err, json.Unmarshal(b, &again)); err != nil {
			t.Errorf("%s: %s: %v", text, b, err)
		}
		for _, p := range []Patch{p, again} {
			after, err := p.ApplyEnv(env)
			e, eerr := json.Marshal(after)
			l, lerr := json.Marshal(p.ApplyLimits(limits))
			if got := string(e) + " " + string(l); got != want || errors.Join(err, eerr, lerr) != nil {
				t.Errorf("%s: %s, want %s (%v)", text, got, want, errors.Join(err, eerr, lerr))
			}
			if p.OnlyLabels() || p.Force != strings.Contains(text, "force") ||
				(p.Profile == "web") != strings.Contains(text, "web") {
				t.Errorf("%s: %+v", text, p)
			}
		}
	}
	for _, text := range []string{
		`{"force":true}`, `{"profile":""}`, `{"profile":null}`, `{"profile":"../web"}`, `{"profile":7}`,
		`{"env":{"PATH":"/x"}}`, `{"env":{"PATH":null}}`, `{"env":{"LD_PRELOAD":"x"}}`, `{"env":{"A":1}}`,
		`{"env":{"A B":"1"}}`, `{"env":{"A":"\u0000"}}`, `{"env":[]}`, `{"limits":[]}`, `{"limits":{"x":1}}`,
		`{"env":{"A":"` + strings.Repeat("x", MaxEnvBytes+1) + `"}}`,
		`{"limits":{"x":null}}`, `{"limits":{"pids_max":"many"}}`, `{"limits":{"pids_max":{}}}`,
		`{"limits":{"pids_max":16},"force":"yes"}`, `{"limits":{"Pids_max":16}}`,
	} {
		var p Patch
		if err := json.Unmarshal([]byte(text), &p); err == nil && p.Validate() == nil {
			t.Errorf("%s is taken: %+v", text, p)
		}
	}
}
