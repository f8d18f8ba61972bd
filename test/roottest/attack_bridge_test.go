package roottest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/front/runs"
	"github.com/chatd/chatd/internal/filewire"
	"github.com/chatd/chatd/internal/verbs"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// asBridge is a bridge of that name.
func asBridge(ctx context.Context, name string) context.Context {
	return chat.WithCaller(ctx, chat.Caller{UID: 4711, Name: name, Role: chat.RoleBridge})
}

// sleepingOf is a chat of a bridge's own, asleep.
func sleepingOf(t testing.TB, m *manager, bridge, external string) chat.Chat {
	t.Helper()
	return must.First(m.Create(asBridge(t.Context(), bridge), chat.Spec{ExternalID: external, Awake: new(false)}))(t)
}

// TestAttackScheduleSlots: a bridge whose schedules come due first, and whose runs do not end,
// does not keep those of another bridge waiting.
func TestAttackScheduleSlots(t *testing.T) {
	clock, opt := nine(), attackOptions(t)
	m := open(t, opt)
	k := clocked(t, m, runs.Options{Clock: clock.clock(), Slots: 2})
	for _, name := range []string{"one", "two", "three"} {
		c := sleepingOf(t, m, "greedy", name)
		_, err := k.AddSchedule(asBridge(t.Context(), "greedy"), c.ID, chat.ScheduleSpec{At: "2026-11-21T09:00", Command: "sleep 1000"})
		must.Do(t, err)
	}
	c := sleepingOf(t, m, "honest", "four")
	s, err := k.AddSchedule(asBridge(t.Context(), "honest"), c.ID, chat.ScheduleSpec{At: "2026-11-21T09:00:05", Command: "echo done"})
	must.Do(t, err)
	clock.move(31 * time.Second)
	clock.move(9 * time.Second)
	got := waitScheduled(t, k, c.ID, s.ID, 1)
	expect.True(t, got.Last.Output == "done\n", "%+v", got.Last)
}

// TestAttackForeignOwner: a bridge that names another owner makes nothing, and stands in the
// audit log.
func TestAttackForeignOwner(t *testing.T) {
	opt := options(t)
	m := open(t, opt)
	spec := chat.Spec{ExternalID: "a", Owner: "foreign"}
	expect.Is(t, expect.Err(m.Create(asBridge(t.Context(), "own"), spec)), chat.ErrDenied,
		"a bridge created a chat of another owner")
	last := lastAudit(t, opt)
	for _, want := range []string{`"action":"create","outcome":"denied"`, `"own"`, `"owner":"foreign"`} {
		expect.True(t, strings.Contains(last, want), "the audit log ends with %s, want %s", last, want)
	}
	page := must.Get(m.List(operator(t.Context()), chat.Filter{}))(t)
	expect.True(t, len(page.Chats) == 0, "there are %+v", page.Chats)
}

// TestAttackNotFound: every request of a bridge gets the same answer for another bridge's chat as
// for one that never existed, so that it learns nothing about others' chats.
func TestAttackNotFound(t *testing.T) {
	m := open(t, options(t))
	own, foreign := sleepingOf(t, m, "own", "a"), sleepingOf(t, m, "foreign", "a")
	ctx := asBridge(t.Context(), "own")
	const never = "0123456789abcdef"
	given := map[reflect.Type]any{}
	for _, v := range []any{
		"", int64(-1), true, chat.Patch{NoLabels: true}, chat.ToArchive{}, chat.ScreenSpec{History: 1}, chat.RunSpec{Command: "true"}, chat.RunSignal{Signal: "TERM"}, chat.Input{Text: "x", Wait: &chat.Wait{Until: chat.UntilQuiet}},
		chat.ScheduleSpec{Cron: "@daily", Command: "true"}, chat.Attach{TTY: chat.TTY{Rows: 24, Cols: 80}}, chat.Question{Path: "f", Op: "read"}, chat.Share{Path: "f", To: own.ID},
		filewire.ReadFile{Path: "f"}, filewire.WriteFile{Path: "f", Stream: true}, filewire.EditFile{Path: "f", OldText: "xx"}, filewire.ListDir{},
	} {
		given[reflect.TypeOf(v)] = v
	}
	asked := 0
	k, calls := front(t, m), reflect.TypeFor[verbs.Chats]()
	for i := range calls.NumMethod() {
		call := calls.Method(i)
		if call.Type.NumIn() < 2 || call.Type.In(1) != reflect.TypeFor[chat.ID]() {
			continue
		}
		asked++
		answer := func(id chat.ID) string {
			args := []reflect.Value{reflect.ValueOf(ctx), reflect.ValueOf(id)}
			for n := 2; n < call.Type.NumIn(); n++ {
				in := call.Type.In(n)
				switch v, ok := given[in]; {
				case ok:
					args = append(args, reflect.ValueOf(v))
				case in.Kind() == reflect.Interface:
					args = append(args, reflect.ValueOf(io.NopCloser(strings.NewReader("x"))))
				case in.Kind() == reflect.Func:
					args = append(args, reflect.Zero(in))
				default:
					t.Fatalf("%s takes a %s: write one down", call.Name, in)
				}
			}
			out := reflect.ValueOf(k).MethodByName(call.Name).Call(args)
			err, _ := out[len(out)-1].Interface().(error)
			expect.True(t, errors.Is(err, chat.ErrNotFound), "%s: %v, want not found", call.Name, err)
			return strings.ReplaceAll(fmt.Sprint(err), string(id), never)
		}
		if a, b := answer(foreign.ID), answer(never); a != b {
			t.Errorf("%s: %q of another's, %q of none", call.Name, a, b)
		}
	}
	expect.True(t, asked >= 30, "only %d calls were asked", asked)
	for _, to := range []chat.ID{foreign.ID, never} {
		_, err := m.Share(ctx, own.ID, chat.Share{Path: "f", To: to})
		if want := chat.NoChat(to).Error(); err == nil || err.Error() != want {
			t.Errorf("share to %s: %v, want %q", to, err, want)
		}
	}
}
