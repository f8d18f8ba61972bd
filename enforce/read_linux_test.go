package enforce

import (
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

// event is one event as fanotify(7) writes it.
func event(mask byte, records ...[]byte) []byte {
	b := make([]byte, fanHeader)
	for _, r := range records {
		b = append(b, r...)
	}
	b[0], b[4], b[6], b[11] = byte(len(b)), unix.FANOTIFY_METADATA_VERSION, fanHeader, mask
	return b
}

func record(kind byte, name string) []byte {
	b := make([]byte, 20)
	b[0], b[12], b[16] = kind, 4, 1
	b = append(append(b, "hand"...), name...)
	b = append(b, 0)
	b[2] = byte(len(b))
	return b
}

func TestParseEvents(t *testing.T) {
	b := append(event(0, record(fanOldName, "old"), record(fanNewName, "new"), record(fanFID, "")), event(0, record(9, "x"))...)
	got, err := parseEvents(b)
	if err != nil || len(got) != 2 || got[0].old.name != "old" || got[0].dir.name != "new" || got[0].child == "" || got[0].child != got[0].dir.dir || got[1].child != "" {
		t.Errorf("%+v, %v", got, err)
	}
	for cut := 1; cut < len(b); cut++ {
		if events, err := parseEvents(b[:cut]); err == nil && len(events) != 1 {
			t.Errorf("%d bytes are read as %d events", cut, len(events))
		}
	}
}

func FuzzParseEvents(f *testing.F) {
	whole := event(0, record(fanNewName, "new"), record(fanOldName, "old"), record(fanFID, ""))
	f.Add(whole)
	f.Add(whole[:len(whole)-1])
	f.Add(slices.Concat(whole, []byte{0}))
	f.Add(event(0, []byte{fanFID, 0, 8, 0, 1, 2, 3, 4})) // a record without a handle
	// The version, a record's kind and size, and the size of its handle.
	for _, at := range []int{4, fanHeader, fanHeader + 2, fanHeader + 12} {
		bad := slices.Clone(whole)
		bad[at] = 99
		f.Add(bad)
	}
	f.Fuzz(func(_ *testing.T, b []byte) { _, _ = parseEvents(b) })
}
