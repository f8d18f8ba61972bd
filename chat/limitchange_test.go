package chat

import (
	"encoding/json"
	"errors"
	"reflect"
	"slices"
	"testing"
	"time"
)

func raw(texts map[string]string) LimitChange {
	c := LimitChange{}
	for k, v := range texts {
		c[k] = json.RawMessage(v)
	}
	return c
}

// TestLimitChange: each key of the limits can be changed alone, and what is no value of it is
// refused.
func TestLimitChange(t *testing.T) {
	for _, key := range LimitKeys() {
		value := "2097152"
		if key == "cpu_quota" || key == "cpu_period" {
			value = `"77ms"`
		}
		l, err := raw(map[string]string{key: value}).Apply(DefaultLimits())
		if err != nil || !slices.Equal(l.Differing(DefaultLimits()), []string{key}) {
			t.Errorf("%s: %v differ, %v", key, l.Differing(DefaultLimits()), err)
		}
		if l, err := raw(map[string]string{}).Apply(l); err != nil || len(l.Differing(DefaultLimits())) != 1 {
			t.Errorf("%s: no change changes it: %v", key, err)
		}
	}
	for key, value := range map[string]string{
		"Memory_Max": "33554432", "none": "1", "memory_max": `"1G"`, "pids_max": "-1", "nofile": "1.5",
		"cpu_quota": "5", "shm_size": "null", "fsize": "[1]", "swap_max": "1e3",
		"cpu_period": `"` + string(make([]byte, 50)) + `"`, "io_weight": "18446744073709551616",
	} {
		if l, err := raw(map[string]string{key: value}).Apply(DefaultLimits()); !errors.Is(err, ErrInvalid) {
			t.Errorf("%s %s: %+v, %v", key, value, l, err)
		}
	}
}

// TestCheckLimits: an operator sets what the kernel takes; a bridge nothing above the profile.
func TestCheckLimits(t *testing.T) {
	p := Profile{Name: "p", Limits: DefaultLimits()}
	p.Limits.FSize, p.Limits.IOReadBPS, p.Limits.SwapMax = 1<<30, 1<<20, 1<<20
	operator, bridge := Caller{Role: RoleOperator}, Caller{Role: RoleBridge, Name: "b"}
	for _, c := range []struct {
		change           map[string]string
		operator, bridge error
	}{
		{map[string]string{}, nil, nil},
		{map[string]string{"memory_max": "67108864", "pids_max": "16", "swap_max": "0"}, nil, nil},
		{map[string]string{"memory_max": "268435456"}, nil, nil},
		{map[string]string{"memory_max": "268435457"}, nil, ErrDenied},
		{map[string]string{"pids_max": "201"}, nil, ErrDenied},
		{map[string]string{"swap_max": "2097152"}, nil, ErrDenied},
		{map[string]string{"fsize": "0"}, nil, ErrDenied},
		{map[string]string{"io_read_bps": "0"}, nil, ErrDenied},
		{map[string]string{"io_write_bps": "1048576"}, nil, nil},
		{map[string]string{"io_weight": "101"}, nil, ErrDenied},
		{map[string]string{"cpu_quota": `"500ms"`, "cpu_period": `"1s"`}, nil, ErrDenied},
		{map[string]string{"cpu_quota": `"1ms"`}, ErrInvalid, ErrInvalid}, // half of a share
		{map[string]string{"cpu_period": `"500ms"`}, ErrInvalid, ErrInvalid},
		{map[string]string{"cpu_quota": `"250ms"`, "cpu_period": `"500ms"`}, nil, ErrDenied},
		{map[string]string{"cpu_quota": `"50ms"`, "cpu_period": `"200ms"`}, nil, nil},
		{map[string]string{"memory_max": "1"}, ErrInvalid, ErrInvalid},
		{map[string]string{"nofile": "0"}, ErrInvalid, ErrInvalid},
		{map[string]string{"cpu_quota": `"-1s"`}, ErrInvalid, ErrInvalid},
	} {
		for by, want := range map[Caller]error{operator: c.operator, bridge: c.bridge} {
			if err := p.CheckLimits(raw(c.change), raw(c.change), by); !errors.Is(err, want) {
				t.Errorf("%v by %s: %v, want %v", c.change, by.Role, err, want)
			}
		}
	}
}

// TestAboveOfEachLimit: no limit is left out of the bound of bridges, also not one to come.
func TestAboveOfEachLimit(t *testing.T) {
	most := DefaultLimits()
	for _, f := range limitFields() {
		l := most
		v := reflect.ValueOf(&l).Elem().FieldByIndex(f.Index)
		if v.CanInt() {
			v.SetInt(v.Int() + int64(time.Millisecond))
		} else {
			v.SetUint(v.Uint() + 1)
		}
		most := most
		if isUnbounded := number(reflect.ValueOf(most).FieldByIndex(f.Index)) == 0; isUnbounded && limitKey(f) != "swap_max" {
			l, most = most, l // 0 is no bound: it is above each
		}
		if got := l.Above(most); len(got) != 1 && limitKey(f) != "cpu_period" {
			t.Errorf("%s: above %v", limitKey(f), got)
		}
	}
}
