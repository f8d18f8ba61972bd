package chat

import (
	"errors"
	"strings"
	"testing"
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
