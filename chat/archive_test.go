package chat

import (
	"errors"
	"testing"
	"time"
)

// TestArchiveName: a name is one that chatd makes, and nothing else.
func TestArchiveName(t *testing.T) {
	at := time.Date(2026, 11, 25, 16, 0, 5, 9, time.FixedZone("", 3600))
	name := NewArchiveName("0123456789abcdef", at)
	if name != "0123456789abcdef-20261125T150005Z" || name.ID() != "0123456789abcdef" {
		t.Errorf("the name is %s", name)
	}
	if got, err := ParseArchiveName(string(name)); err != nil || got != name {
		t.Errorf("%q, %v", got, err)
	}
	for _, bad := range []string{
		"", "0123456789abcdef", "0123456789abcdef-", "0123456789ABCDEF-20261125T150005Z",
		"0123456789abcdef-20261325T150005Z", "0123456789abcdef-20261125T150005Z.json",
		"../0123456789abcdef-20261125T150005Z", "0123456789abcdef-20261125T150005.5Z",
		"0123456789abcdef-20261125T150005Z\n", "0123456789abcdef-20261125T150005Z-",
	} {
		if got, err := ParseArchiveName(bad); !errors.Is(err, ErrInvalid) {
			t.Errorf("%q is %q, %v", bad, got, err)
		}
	}
}
