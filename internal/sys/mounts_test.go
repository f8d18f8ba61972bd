package sys

import (
	"cmp"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/chatd/chatd/test/expect"
)

// TestComparePaths: the order is that of the lists of names.
func TestComparePaths(t *testing.T) {
	paths := []string{"/", "/a", "/a/b", "/a/b/c", "/a-b", "/a.b", "/a b",
		"/ab", "/a/\x01", "/b", "/a/b-", "/Ä"}
	for _, a := range paths {
		for _, b := range paths {
			want := slices.Compare(strings.Split(a, "/"), strings.Split(b, "/"))
			if got := ComparePaths(a, b); got != cmp.Compare(want, 0) {
				t.Errorf("%q, %q: %d, want %d", a, b, got, want)
			}
		}
	}
}

func TestParseMounts(t *testing.T) {
	const line = "36 35 98:0 /mnt1 /a\\040b\\011\\134 ro,noatime master:1 shared:2" +
		" - ext4 /dev/root rw,errors=continue\n"
	got, err := ParseMounts(line +
		"37 35 0:5 / /c rw - tmpfs none ro\n" + "38 35 0:5 / /d rw - tmpfs none rw\n")
	want := []Mount{
		{36, 35, "98:0", "/mnt1", "/a b\t\\", "ext4", "/dev/root", false, "rw,errors=continue"},
		{37, 35, "0:5", "/", "/c", "tmpfs", "none", false, "ro"},
		{38, 35, "0:5", "/", "/d", "tmpfs", "none", true, "rw"},
	}
	expect.True(t, err == nil && slices.Equal(got, want), "%+v, %v", got, err)
	for _, bad := range []string{
		"36 35 98:0 /mnt1 /a\n", "1 2 3\n", "a b c d e - f\n", "\n",
		"x 1 98:0 / /a rw - ext4 /dev/root rw\n", "1 x 98:0 / /a rw - ext4 /dev/root rw\n",
	} {
		if _, err := ParseMounts(bad); err == nil {
			t.Errorf("took %q", bad)
		}
	}
	expect.Equal(t, unescape(`a\040b\134c\\d\9`), `a b\c\\d\9`, "")
	own, err := os.ReadFile("/proc/self/mountinfo")
	if err == nil {
		_, err = ParseMounts(string(own))
	}
	expect.NoError(t, err)
}

func FuzzParseMounts(f *testing.F) {
	f.Add("36 35 98:0 /mnt1 /a\\040b ro - ext4 /dev/root rw\n")
	for _, s := range []string{
		"    ", "\x00\n", "0 \xff 0 0 ", "A A 0 0 0 0 - 0 0",
		"0 0000 000\xcd0 00000000 00 0 0000000000 00 ",
		strings.Repeat("0", 47) + "\xd2" + strings.Repeat("0", 17),
	} {
		f.Add(s)
	}
	f.Fuzz(func(_ *testing.T, text string) { _, _ = ParseMounts(text) })
}
