package broker

import (
	"context"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
)

// TestVerbs: each method of Root has a verb of its own name, which chatd-root knows.
func TestVerbs(t *testing.T) {
	var called atomic.Value
	other := map[string]string{"Screen": "screen", "ScreenWith": "screen", "ShareFile": "share",
		"Get": "show", "EndRun": "run_end", "Schedules": "list_schedules", "Schedule": "show_schedule",
		"Input": "send", "EgressLog": "egress"}
	all := map[any]bool{}
	d := serve(t)
	for name, do := range handlers {
		handlers[name] = func(ctx context.Context, c *call) (any, error) {
			called.Store(name)
			return do(ctx, c)
		}
		defer func() { handlers[name] = do }()
	}
	client := reflect.ValueOf(d.Client)
	for i := range reflect.TypeFor[Root]().NumMethod() {
		name := reflect.TypeFor[Root]().Method(i).Name
		m := client.MethodByName(name)
		in := []reflect.Value{reflect.ValueOf(operator(t))}
		for j := 1; j < m.Type().NumIn(); j++ {
			in = append(in, reflect.Zero(m.Type().In(j)))
		}
		called.Store("")
		m.Call(in)
		got := called.Load().(string)
		if got != other[name] && !strings.EqualFold(strings.ReplaceAll(got, "_", ""), name) {
			t.Errorf("%s asks for %q", name, got)
		}
		all[got] = true
	}
	if _, err := d.NameOf(0); err != nil || len(all)+1 != len(handlers) {
		t.Errorf("%d verbs for %d methods; %v", len(handlers), len(all), err)
	}
	if err := d.end(t); err != nil {
		t.Error(err)
	}
}
