package idle

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/chatd/chatd/chat"
)

// MakeRoom puts the longest idle chat to sleep, of one owner or, if owner is empty, of all, because
// another chat is to wake. It puts none to sleep unless fits is true of idle chats together. If
// none can sleep it returns what keeps them awake, as in "12 at work, 3 in use within 10s", with
// the names of those at work that the caller in ctx may see, and soon: there may be room before
// long, by fits of those that may be idle by then, with soon.
func (w *Watch) MakeRoom(
	ctx context.Context, owner string, fits func(asleep []chat.ID, soon bool) bool,
) (made, soon bool, awake string) {
	chats := w.opt.Awake()
	slices.SortFunc(chats, func(a, b Chat) int { // the frozen ones first
		frozen := cmp.Compare(b.Frozen, a.Frozen)
		return cmp.Or(frozen, a.Used.Compare(b.Used), cmp.Compare(a.ID, b.ID))
	})
	why := reasons{caller: chat.CallerFrom(ctx)}
	var idle []Chat
	for _, c := range chats {
		if ctx.Err() != nil { // nobody wants the place any more
			return false, false, "the caller has left"
		}
		if owner != "" && c.Owner != owner || !w.mayMakeRoom(c, &why) {
			continue
		}
		idle = append(idle, c)
		for len(idle) > 0 && fits(ids(idle), false) {
			if w.makesRoom(idle[0], &why) {
				return true, false, ""
			}
			idle = idle[1:]
		}
	}
	soon = len(why.recent) > 0 || why.nothing()
	why.idle = len(idle)
	return false, soon && fits(append(ids(idle), why.recent...), true), why.String()
}

func ids(chats []Chat) (all []chat.ID) {
	for _, c := range chats {
		all = append(all, c.ID)
	}
	return all
}

// makesRoom puts an idle chat to sleep; if it cannot, why counts it.
func (w *Watch) makesRoom(c Chat, why *reasons) bool {
	words := fmt.Sprintf("idle for %s, and another chat needed its place",
		time.Since(c.Used).Round(time.Second))
	slept, err := w.sleep(c, words)
	switch {
	case err != nil: // it keeps no other from making room
		w.opt.Log.Warn("a chat does not make room", "chat", c.ID, "error", err)
		why.stuck++
	case !slept:
		why.works(c, "another call acts on it")
	}
	return slept && err == nil
}

// mayMakeRoom reports whether a chat is idle; if it is not, why counts it.
func (w *Watch) mayMakeRoom(c Chat, why *reasons) bool {
	if c.KeepAwake {
		why.kept++
		return false
	}
	if c.Frozen == chat.FrozenUntilThawed {
		why.held++
		return false
	}
	if does, _ := w.work(c.ID, time.Now(), false); does != "" {
		w.opt.Use(c.ID, time.Now())
		why.works(c, does)
		return false
	}
	if time.Since(c.Used) < minIdle {
		why.recent = append(why.recent, c.ID)
		return false
	}
	return true
}

// reasons count the chats that make no room, by the reason.
type reasons struct {
	caller                           chat.Caller
	working, kept, held, stuck, idle int
	recent                           []chat.ID
	names                            []string // of those at work, with what they do
}

// nothing reports whether no chat is kept awake: the others, if any, are waking.
func (r *reasons) nothing() bool { return r.working+r.kept+r.held+r.stuck == 0 }

// maxNames bounds the chats that a refusal names.
const maxNames = 5

// works counts a chat at work, and names it to a caller that may see it.
func (r *reasons) works(c Chat, does string) {
	r.working++
	if r.caller.MayReach(c.Owner) && len(r.names) < maxNames {
		r.names = append(r.names, fmt.Sprintf("%s: %s", c.ID, does))
	}
}

// String is the part of a sentence.
func (r reasons) String() string {
	var parts []string
	for _, p := range []struct {
		n     int
		words string
	}{
		{r.working, "at work" + r.who()},
		{len(r.recent), fmt.Sprintf("in use within %s", minIdle)},
		{r.kept, "kept awake (keep_awake)"},
		{r.held, "frozen by an operator"},
		{r.stuck, "not to be ended: see chatd's log"},
		{r.idle, "idle, which is not enough"},
	} {
		if p.n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", p.n, p.words))
		}
	}
	return cmp.Or(strings.Join(parts, ", "), "the others are waking")
}

// who names the chats at work, in brackets.
func (r reasons) who() string {
	names := strings.Join(r.names, ", ")
	switch {
	case names == "":
		return ""
	case len(r.names) < r.working:
		names += " and more"
	}
	return " (" + names + ")"
}
