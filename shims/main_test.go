package shims

import (
	"strings"
	"testing"
)

func FuzzOptions(f *testing.F) {
	f.Add("--pid\x001\x00--home=/x")
	f.Fuzz(func(t *testing.T, text string) {
		if got, err := options(strings.Split(text, "\x00"), "pid", "home"); err == nil && len(got["other"]) > 0 {
			t.Error("took an unknown option")
		}
	})
}
