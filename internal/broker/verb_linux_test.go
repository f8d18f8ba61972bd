package broker

import (
	"context"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/verbs"
	"github.com/chatd/chatd/test/expect"
)

// TestVerbs: each method of Root has a verb of its own name, which chatd-root knows.
func TestVerbs(t *testing.T) {
	var called atomic.Value
	other := map[string]string{"Screen": "screen", "ScreenWith": "screen", "ShareFile": "share",
		"Get": "show", "EndRun": "run_end", "Schedules": "list_schedules", "Schedule": "show_schedule",
		"Input": "send", "EgressLog": "egress", "Archives": "list_archives",
		"SignalRun": "run_signal"}
	all := map[any]bool{}
	d := serve(t)
	for name, do := range handlers {
		handlers[name] = func(ctx context.Context, c *call, id chat.ID, read func(any) error) (any, error) {
			called.Store(name)
			return do(ctx, c, id, read)
		}
		defer func() { handlers[name] = do }()
	}
	client := reflect.ValueOf(d.Client)
	for i := range reflect.TypeFor[verbs.Root]().NumMethod() {
		name := reflect.TypeFor[verbs.Root]().Method(i).Name
		m := client.MethodByName(name)
		in := []reflect.Value{reflect.ValueOf(operator(t))}
		for j := 1; j < m.Type().NumIn(); j++ {
			in = append(in, reflect.Zero(m.Type().In(j)))
		}
		called.Store("")
		m.Call(in)
		got := called.Load().(string)
		expect.True(t, got == other[name] || strings.EqualFold(strings.ReplaceAll(got, "_", ""), name),
			"%s asks for %q", name, got)
		all[got] = true
	}
	if _, err := d.NameOf(0); err != nil || len(all)+1 != len(handlers) {
		t.Errorf("%d verbs for %d methods; %v", len(handlers), len(all), err)
	}
	expect.NoError(t, d.end(t))
}
