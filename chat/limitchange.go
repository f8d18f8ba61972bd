package chat

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
)

// LimitChange is how the limits of one chat differ from those of its profile: values by the keys of
// [Limits], in JSON.
type LimitChange map[string]json.RawMessage

// maxLimitValue bounds the text of one value, in bytes.
const maxLimitValue = 40

// LimitKeys are the keys of [Limits], in its order.
func LimitKeys() (keys []string) {
	for _, f := range limitFields() {
		keys = append(keys, limitKey(f))
	}
	return keys
}

func limitFields() []reflect.StructField {
	fields := reflect.VisibleFields(reflect.TypeFor[Limits]())
	return slices.DeleteFunc(fields, func(f reflect.StructField) bool { return f.Anonymous })
}

func limitKey(f reflect.StructField) string {
	key, _, _ := strings.Cut(f.Tag.Get("json"), ",")
	return key
}

// Apply returns the limits with the change. The error is [ErrInvalid] and names the key.
func (c LimitChange) Apply(l Limits) (Limits, error) {
	known := LimitKeys()
	for _, key := range slices.Sorted(maps.Keys(c)) {
		v := c[key]
		if !slices.Contains(known, key) {
			return l, Invalid("cannot use limits: unknown key %s: want %s", Quote(key),
				strings.Join(known, ", "))
		}
		if len(v) > maxLimitValue || string(v) == "null" {
			return l, Invalid("cannot use limits.%s: want a value", key)
		}
		one, err := json.Marshal(LimitChange{key: v})
		if err == nil {
			err = json.Unmarshal(one, &l)
		}
		if err != nil {
			const want = "want a whole number, or for a time a text as in \"250ms\""
			return l, Invalid("cannot use limits.%s %s: %s", key, Quote(string(v)), want)
		}
	}
	return l, nil
}

// CheckLimits accepts a change of limits of which the caller asks for a part: the result must be
// limits that a profile may have, and only an operator gets more than the profile gives
// ([ErrDenied]).
func (p Profile) CheckLimits(c, asked LimitChange, by Caller) error {
	l, err := c.Apply(p.Limits)
	if err == nil {
		err = l.Validate()
	}
	if err == nil {
		err = c.checkShare()
	}
	if err != nil || by.Role == RoleOperator {
		return err
	}
	for _, key := range l.Above(p.Limits) {
		if asked.names(key) {
			return fmt.Errorf("cannot set limits.%s above that of profile %s: an operator can: %w",
				key, p.Name, ErrDenied)
		}
	}
	return nil
}

// checkShare refuses half of a share of the CPU: with another period of the profile, by now or later,
// a quota would be another share.
func (c LimitChange) checkShare() error {
	_, quota := c["cpu_quota"]
	_, period := c["cpu_period"]
	if quota != period {
		return Invalid("cannot use limits.cpu_quota and cpu_period: want both, or none")
	}
	return nil
}

// names reports whether the change is about a key. Quota and period of the CPU are one share.
func (c LimitChange) names(key string) bool {
	_, own := c[key]
	_, period := c["cpu_period"]
	return own || key == "cpu_quota" && period
}

// Above names the limits that give more than those of most.
func (l Limits) Above(most Limits) (keys []string) {
	a, b := reflect.ValueOf(l), reflect.ValueOf(most)
	for _, f := range limitFields() {
		key, above := limitKey(f), false
		switch key {
		case "cpu_period":
		case "cpu_quota": // as shares: l.CPUQuota/l.CPUPeriod > most.CPUQuota/most.CPUPeriod
			above = share(l) > share(most)
		default:
			above = isAbove(key, number(a.FieldByIndex(f.Index)), number(b.FieldByIndex(f.Index)))
		}
		if above {
			keys = append(keys, key)
		}
	}
	return keys
}

func share(l Limits) float64 { return l.CPUQuota.D().Seconds() / l.CPUPeriod.D().Seconds() }

// isAbove takes 0 for no bound, except for swap, of which it is none.
func isAbove(key string, n, most uint64) bool {
	if key == "swap_max" || n != 0 && most != 0 {
		return n > most
	}
	return most != 0
}

func number(v reflect.Value) uint64 {
	if v.CanInt() {
		return uint64(v.Int())
	}
	return v.Uint()
}

// Differing names the limits in which l and other differ.
func (l Limits) Differing(other Limits) (keys []string) {
	a, b := reflect.ValueOf(l), reflect.ValueOf(other)
	for _, f := range limitFields() {
		if !a.FieldByIndex(f.Index).Equal(b.FieldByIndex(f.Index)) {
			keys = append(keys, limitKey(f))
		}
	}
	return keys
}
