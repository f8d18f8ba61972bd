package chat

import (
	"errors"
	"strings"
	"testing"
	"time"
)

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
