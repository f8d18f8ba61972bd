package account

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/test/must"
)

// TestUserdb: what Create wrote has not drifted, a change is found and written again, and Remove
// leaves nothing, also when it is called twice.
func TestUserdb(t *testing.T) {
	u := &Userdb{Dir: t.TempDir()}
	a := User{Name: "chat-of-nobody", ID: 4000000001, Home: "/nonexistent"}
	for range 2 {
		must.Do(t, u.Create(t.Context(), a))
		if why, err := u.Drift(a); why != "" || err != nil {
			t.Fatalf("drift right after Create: %q, %v", why, err)
		}
		recorded, err := u.Recorded()
		number := filepath.Join(u.Dir, "4000000001.user")
		must.True(t, err == nil && len(recorded) == 1 && recorded[a.ID] == number, "%v, %v", recorded, err)
		changed := filepath.Join(u.Dir, "4000000001.user")
		must.Do(t, errors.Join(os.Remove(changed), os.Symlink("root.user", changed)))
		if why, err := u.Drift(a); why == "" || err != nil {
			t.Fatalf("drift of a changed link: %q, %v", why, err)
		}
	}
	for range 2 {
		must.Do(t, u.Remove(t.Context(), a))
	}
	if none, err := u.Recorded(); err != nil || len(none) > 0 {
		t.Errorf("after Remove: %v, %v", none, err)
	}
	if none, err := (&Userdb{Dir: u.Dir + "-gone"}).Recorded(); err != nil || len(none) > 0 {
		t.Errorf("without a directory: %v, %v", none, err)
	}
	if left, err := os.ReadDir(u.Dir); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

// TestCheckRange refuses uids of the host, and ranges that are no range.
func TestCheckRange(t *testing.T) {
	for _, r := range [][2]uint32{{0, 100000}, {1 << 16, 1 << 16}, {70000, 70010}, {70000, 1 << 31}} {
		if err := CheckRange(r[0], r[1]); !errors.Is(err, chat.ErrInvalid) {
			t.Errorf("%d-%d: %v, want %v", r[0], r[1], err, chat.ErrInvalid)
		}
	}
}
