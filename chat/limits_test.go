package chat

import (
	"encoding/json"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestIOLimits: a bound too low for a session to start, and a number too large for the kernel, are
// refused with their key.
func TestIOLimits(t *testing.T) {
	for _, ok := range []IOLimits{
		{IOWeight: 1}, {IOWeight: 10_000}, {IOWeight: 100, IOReadBPS: 1 << 20, IOWriteBPS: 1 << 40},
		{IOWeight: 100, IOReadIOPS: 100, IOWriteIOPS: 1<<32 - 1},
	} {
		l := DefaultLimits()
		l.IOLimits = ok
		if err := l.Validate(); err != nil || !l.AsksIO() || l.BoundsIO() != (ok.IOWeight == 100) {
			t.Errorf("%+v: %v", ok, err)
		}
	}
	for key, bad := range map[string]IOLimits{
		"io_weight":     {IOWeight: 10_001},
		"io_read_bps":   {IOWeight: 100, IOReadBPS: 1},
		"io_write_bps":  {IOWeight: 100, IOWriteBPS: 1<<20 - 1},
		"io_read_iops":  {IOWeight: 100, IOReadIOPS: 99},
		"io_write_iops": {IOWeight: 100, IOWriteIOPS: 1 << 32},
	} {
		l := DefaultLimits()
		l.IOLimits = bad
		err := l.Validate()
		if !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), "limits."+key+":") {
			t.Errorf("%+v: %v, want that limits.%s is refused", bad, err, key)
		}
	}
	if l := DefaultLimits(); l.AsksIO() || l.BoundsIO() {
		t.Error("by default a bound on block I/O is asked for")
	}
}

// TestParseAge: days and weeks, which Go's durations do not have.
func TestParseAge(t *testing.T) {
	const day = 24 * time.Hour
	for s, want := range map[string]time.Duration{
		"30d": 30 * day, "2w": 14 * day, "1w2d3h": 9*day + 3*time.Hour,
		"90m": 90 * time.Minute, "0s": 0, "0": 0,
	} {
		if d, err := ParseAge(s); err != nil || d != want {
			t.Errorf("%s: %s, %v", s, d, err)
		}
	}
	for _, s := range []string{"", "d", "-1d", "1.5d", "3", "1d1", "1h1d", "-5m", "99999999d"} {
		if d, err := ParseAge(s); err == nil {
			t.Errorf("%s: %s", s, d)
		}
	}
}

// TestCheckFreezeAfter: a chat is frozen before it sleeps, or never.
func TestCheckFreezeAfter(t *testing.T) {
	const second = Duration(time.Second)
	for _, tt := range []struct {
		freeze, sleep Duration
		ok            bool
	}{
		{0, 0, true}, {0, 5 * second, true}, {5 * second, 0, true}, {5 * second, 6 * second, true},
		{4 * second, 0, false}, {6 * second, 6 * second, false}, {7 * second, 6 * second, false},
		{-second, 0, false},
	} {
		err := CheckFreezeAfter(tt.freeze, tt.sleep)
		if (err == nil) != tt.ok || err != nil && !errors.Is(err, ErrInvalid) {
			t.Errorf("freeze_after %s, sleep_after %s: %v", tt.freeze, tt.sleep, err)
		}
	}
}

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

func TestRunTimeout(t *testing.T) {
	minutes := func(n int) Duration { return Duration(n) * Duration(time.Minute) }
	for _, c := range []struct{ max, wish, usual, want Duration }{
		{0, 0, DefaultTimeout, DefaultTimeout},
		{0, MaxTimeout, DefaultTimeout, MaxTimeout},
		{0, MaxTimeout + 1, DefaultTimeout, -1},
		{minutes(90), minutes(90), DefaultTimeout, minutes(90)},
		{minutes(2), 0, minutes(5), minutes(2)},
		{minutes(2), minutes(3), DefaultTimeout, -1},
		{Duration(time.Second), 0, DefaultTimeout, Duration(time.Second)},
	} {
		got, err := Profile{Name: "short", TimeoutMax: c.max}.RunTimeout(c.wish, c.usual)
		switch {
		case c.want >= 0 && (err != nil || got != c.want.D()):
			t.Errorf("%+v: %s, %v", c, got, err)
		case c.want < 0 && (!errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), "which is timeout_max of profile short")):
			t.Errorf("%+v: %s, %v", c, got, err)
		}
	}
	for _, d := range []Duration{-1, 1, LongestTimeout + 1} {
		if err := (Profile{Name: "p", Limits: DefaultLimits(), TimeoutMax: d}).Validate(); !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), "timeout_max") {
			t.Errorf("%s: %v", d, err)
		}
	}
}
