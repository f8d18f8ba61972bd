package keeper

import (
	"os"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestParseMounts(t *testing.T) {
	got, err := ParseMounts("36 35 98:0 /mnt1 /a\\040b\\011\\134 ro,noatime master:1 shared:2 - ext4 /dev/root rw,errors=continue\n" +
		"37 35 0:5 / /c rw - tmpfs none ro\n")
	if err != nil || len(got) != 2 || got[0].Path != "/a b\t\\" || got[0].Writable || got[0].ID != 36 || got[0].Root != "/mnt1" || got[1].Writable || got[1].Kind != "tmpfs" {
		t.Errorf("%+v, %v", got, err)
	}
	for _, bad := range []string{"36 35 98:0 /mnt1 /a\n", "1 2 3\n", "a b c d e - f\n", "\n", "x 1 98:0 / /a rw - ext4 /dev/root rw\n", "1 x 98:0 / /a rw - ext4 /dev/root rw\n"} {
		if _, err := ParseMounts(bad); err == nil {
			t.Errorf("took %q", bad)
		}
	}
	if got := unescapeMount(`a\040b\134c\\d\9`); got != `a b\c\\d\9` {
		t.Errorf("got %q", got)
	}
	own, err := os.ReadFile("/proc/self/mountinfo")
	if err == nil {
		_, err = ParseMounts(string(own))
	}
	if err != nil {
		t.Error(err)
	}
}

func FuzzParseMounts(f *testing.F) {
	f.Add("36 35 98:0 /mnt1 /a\\040b ro - ext4 /dev/root rw\n")
	for _, s := range []string{"    ", "\x00\n", "0 \xff 0 0 ", "A A 0 0 0 0 - 0 0", "0 0000 000\xcd0 00000000 00 0 0000000000 00 ", strings.Repeat("0", 47) + "\xd2" + strings.Repeat("0", 17)} {
		f.Add(s)
	}
	f.Fuzz(func(_ *testing.T, text string) { _, _ = ParseMounts(text) })
}

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
