package idle

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// freeze freezes a chat that it may put to sleep.
func (h *host) freeze(c Chat, why string) (bool, error) {
	if h.locked[c.ID] {
		return false, nil
	}
	h.froze = append(h.froze, string(c.ID)+" "+why)
	h.chats[c.ID].Frozen = chat.FrozenUntilUsed
	return true, nil
}

// TestFreezeAfter: an idle chat is frozen after freeze_after, once, and sleeps after sleep_after;
// one at work is not frozen. One that an operator froze stays as it is.
func TestFreezeAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, w := newHost()
		const freeze, sleep = 10 * time.Minute, time.Hour
		for _, id := range []chat.ID{"idle", "works", "spins", "held", "locked"} {
			h.wake(Chat{ID: id, FreezeAfter: freeze, SleepAfter: sleep})
		}
		h.wake(Chat{ID: "freezes", FreezeAfter: freeze})
		h.wake(Chat{ID: "sleeps", SleepAfter: sleep})
		h.work["works"], h.locked["locked"] = "the program vim", true
		h.chats["held"].Frozen = chat.FrozenUntilThawed
		const why = " idle for 10m0s, and freeze_after of its profile is 10m0s"
		for i := range 100 {
			h.cpu["spins"] += lookEvery
			w.Look(t.Context())
			time.Sleep(lookEvery)
			if i == 40 {
				slices.Sort(h.froze)
				want := []string{"freezes" + why, "idle" + why}
				must.True(t, slices.Equal(h.froze, want), "frozen are %q, want %q", h.froze, want)
			}
		}
		w.Look(t.Context())
		for range 30 {
			time.Sleep(lookEvery)
			h.cpu["spins"] += lookEvery
			w.Look(t.Context())
		}
		slept := h.asleep()
		slices.Sort(slept)
		if want := []string{"idle", "sleeps"}; !slices.Equal(slept, want) || len(h.froze) != 2 {
			t.Errorf("asleep are %q, want %q; frozen %q", slept, want, h.froze)
		}
		h.chats["freezes"].Used, h.chats["freezes"].Frozen = time.Now(), ""
		for range 21 {
			time.Sleep(lookEvery)
			w.Look(t.Context())
		}
		n := strings.Count(strings.Join(h.froze, "\n"), "freezes ")
		expect.True(t, n == 2, "after its use it is not frozen again: %q", h.froze)
	})
}

// TestFrozenMakesRoom: a frozen chat sleeps before one that is idle for longer. One that an
// operator froze keeps its memory, and the refusal counts it.
func TestFrozenMakesRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, w := newHost()
		h.wake(Chat{ID: "held", Frozen: chat.FrozenUntilThawed})
		time.Sleep(time.Minute)
		h.wake(Chat{ID: "idle"})
		time.Sleep(time.Minute)
		h.wake(Chat{ID: "frozen", Frozen: chat.FrozenUntilUsed})
		time.Sleep(time.Minute)
		for _, want := range []chat.ID{"frozen", "idle"} {
			if made, _, awake := w.MakeRoom(t.Context(), "", one); !made || h.chats[want] != nil {
				t.Errorf("room by %s: %t, %q, asleep are %q", want, made, awake, h.slept)
			}
		}
		made, soon, awake := w.MakeRoom(t.Context(), "", one)
		expect.True(t, !made && !soon && awake == "1 frozen by an operator",
			"%t, soon %t, %q, asleep are %q", made, soon, awake, h.slept)
	})
}
