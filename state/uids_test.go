package state

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// small is a store with a range of three blocks; the last one is short, and lacks the probes' uid.
func small(t testing.TB) *Store {
	return open(t, Options{Dir: t.TempDir(), UIDs: Range{100, 139}, BlockSize: 16})
}

func TestBlocksAreAlignedAndLeaveTheLastTwoUIDs(t *testing.T) {
	s := small(t)
	for i, want := range []struct {
		profile string
		blocks  string
		added   bool
		err     error
	}{
		{"a", "[100-115]", true, nil}, {"a", "[100-115]", false, nil}, {"b", "[116-131]", true, nil},
		{"c", "[132-137]", true, nil}, {"d", "[]", false, chat.ErrBusy}, {"a", "[100-115]", false, nil},
		{"../x", "[]", false, chat.ErrInvalid},
	} {
		blocks, added, err := s.EnsureBlock(want.profile)
		wantErr(t, want.profile, err, want.err)
		expect.True(t, fmt.Sprint(blocks) == want.blocks && added == want.added,
			"%d: %s has %v, added %v; want %v", i, want.profile, blocks, added, want)
		s = again(t, s)
	}
	expect.Equal(t, fmt.Sprint(s.Blocks(), s.Profiles()), "map[a:[100-115] b:[116-131] c:[132-137]] [a b c]",
		"")
}

func TestFurtherBlockBeforeTheLastIsFull(t *testing.T) {
	s := small(t)
	blocks := 0
	for i := range 38 { // 100 to 137: every uid but two
		before, left := s.profileBlocks(chat.DefaultProfile)
		_, added, err := s.EnsureBlock(chat.DefaultProfile)
		must.Do(t, err)
		if added {
			blocks++
			if len(before) > 0 && left != 3 { // a quarter of 16 is 4
				t.Errorf("at %d: block added with %d left", i, left)
			}
		}
		if r := admit(t, s, fmt.Sprint(i)); r.UID != uint32(100+i) {
			t.Fatalf("chat %d has uid %d", i, r.UID)
		}
	}
	expect.True(t, blocks == 3, "%d blocks", blocks)
	_, _, err := s.Admit(chat.Spec{ExternalID: "one more"}, event("create", "intent"))
	wantErr(t, "uid 39 of 38", err, chat.ErrBusy)
	_, _, err = s.EnsureBlock(chat.DefaultProfile)
	wantErr(t, "a block beyond the range", err, chat.ErrBusy)
	r := must.Get(s.Find("bridge", "0"))(t)
	reap(t, s, r.ID)
	_, _, err = s.Admit(chat.Spec{ExternalID: "in its place"}, event("create", "intent"))
	wantErr(t, "a uid that came free", err, chat.ErrBusy)
}

// After a change of range or block size no uid of an old block is given again.
func TestChangedRange(t *testing.T) {
	s := small(t)
	must.Do(t, expect.Err(s.EnsureBlock("a")))
	must.Do(t, s.Close())
	s = open(t, Options{Dir: s.opts.Dir, UIDs: Range{96, 200}, BlockSize: 8})
	blocks, _, err := s.EnsureBlock("b")
	expect.True(t, err == nil && fmt.Sprint(blocks) == "[120-127]", "%v, %v", blocks, err)
	for _, r := range []Range{{0, 10}, {10, 10}, {10, 9}, {1, 1 << 31}} {
		_, err := Open(Options{Dir: t.TempDir(), UIDs: r})
		wantErr(t, r.String(), err, chat.ErrInvalid)
	}
}

// After any sequence of Admit, Forget and reopening no uid is given twice, ids are unique, and the
// same chat has the same id.
func TestRandomLives(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	s := small(t)
	s.opts.UIDs.High, s.opts.BlockSize = 5000, 64
	uids, live, ids := map[uint32]bool{}, map[string]Record{}, map[string]chat.ID{}
	for range 600 {
		ext := fmt.Sprint(rnd.IntN(40))
		r, there := live[ext]
		switch what := rnd.IntN(20); {
		case what == 0:
			s = again(t, s)
		case what < 8 && there:
			reap(t, s, r.ID)
			delete(live, ext)
		case what < 10 && there:
			s.Touch(r.ID, r.UsedAt.Add(1))
		default:
			must.Do(t, expect.Err(s.EnsureBlock(chat.DefaultProfile)))
			got, created, err := s.Admit(chat.Spec{ExternalID: ext}, event("create", "intent"))
			if err != nil || created == there || there && got.UID != r.UID {
				t.Fatalf("Admit(%s): %+v created %v, %v; was %+v", ext, got, created, err, r)
			}
			if created && uids[got.UID] || ids[ext] != "" && ids[ext] != got.ID {
				t.Fatalf("Admit(%s): uid %d came again, or id %s is not %s", ext, got.UID, got.ID, ids[ext])
			}
			uids[got.UID], ids[ext], live[ext] = true, got.ID, got
		}
		if s.Len() != len(live) || s.Given()-s.Len() != len(uids)-len(live) {
			t.Fatalf("%d records, want %d; %d were given, want %d", s.Len(), len(live), s.Given(), len(uids))
		}
	}
	verified(t, s)
}
