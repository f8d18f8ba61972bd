package main

import (
	"os/exec"
	"slices"
	"testing"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/config"
)

func TestBetween(t *testing.T) {
	all := config.UIDRange{Low: 10, High: 20}
	for want, taken := range map[[3][2]uint32][]uint32{
		{{10, 19}}:                     nil,
		{{11, 19}}:                     {10},
		{{10, 13}, {15, 15}, {17, 19}}: {14, 16},
		{{10, 18}}:                     {19},
		{{12, 19}}:                     {3, 10, 11, 20, 99},
	} {
		got := between(all, taken)
		if w := slices.DeleteFunc(want[:], func(r [2]uint32) bool { return r[1] == 0 }); !slices.Equal(got, w) {
			t.Errorf("without %v: %v, want %v", taken, got, w)
		}
	}
}

// TestShellWord: a path acts neither on a terminal nor in the shell that it is pasted into.
func TestShellWord(t *testing.T) {
	for _, path := range []string{"/srv", "/it's $(x)`y`", "/a\x1b[2J\n\xff", "/é"} {
		word := shellWord(path)
		out, err := exec.Command("bash", "-c", "printf %s "+word).Output()
		if err != nil || string(out) != path {
			t.Errorf("%q is %s, which is %q: %v", path, word, out, err)
		}
		for _, b := range []byte(word) {
			if b < ' ' || b > '~' {
				t.Errorf("%q is %q", path, word)
			}
		}
	}
}

// TestStraysAreBounded: a host with files of many uids takes no more room than maxStrays of them.
func TestStraysAreBounded(t *testing.T) {
	v := verified{found: map[uint32]*stray{}}
	for i := range 3 * maxStrays {
		for range 3 * maxStrayPaths {
			v.add(chat.StrayLine{
				Find:   &chat.Stray{UID: uint32(i), Path: []byte("/x"), Mount: []byte("/")},
				Unseen: &chat.Unseen{Path: []byte("/x")},
			})
		}
	}
	one := v.found[0]
	if len(v.found) != maxStrays || len(one.First) != maxStrayPaths || one.Files != 3*maxStrayPaths ||
		v.Unnamed != 2*maxStrays*one.Files || len(v.Why) != maxWhy || v.Unseen != 3*maxStrays*one.Files {
		t.Errorf("%d uids, the first with %+v, %d of others, not seen %d (%d)",
			len(v.found), one, v.Unnamed, v.Unseen, len(v.Why))
	}
}
