package api

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"testing"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/broker"
)

// TestCalls: each call that the broker and the API share is the name of a row.
func TestCalls(t *testing.T) {
	asked := map[string]bool{}
	c := reflect.ValueOf(broker.Calls(func(_ context.Context, verb string, _ chat.ID, _, _ any) error {
		asked[verb] = true
		if !slices.ContainsFunc(routes, func(r route) bool { return r.name == verb }) {
			t.Errorf("%s is not a row", verb)
		}
		return nil
	}))
	for i := range c.NumMethod() {
		in := []reflect.Value{reflect.ValueOf(t.Context())}
		for j := 1; j < c.Method(i).Type().NumIn(); j++ {
			in = append(in, reflect.Zero(c.Method(i).Type().In(j)))
		}
		c.Method(i).Call(in)
	}
	if want := c.NumMethod() - 1; len(asked) != want { // Screen asks for what ScreenWith does
		t.Errorf("%d methods ask for %d rows", want, len(asked))
	}
}

// TestQuery: the fields of a filter are parameters of a query, a name is a part of the path.
func TestQuery(t *testing.T) {
	awake := false
	for want, args := range map[string]any{
		"": chat.Filter{}, "?awake=false&label=a%3D%26&limit=1000000": chat.Filter{
			Label: "a=&", Awake: &awake, Limit: 1_000_000,
		},
		"?history=7&styles=true":     chat.ScreenSpec{Styles: true, History: 7},
		"?chat=x&external_id=a%2Fb+": chat.ArchiveFilter{ExternalID: "a/b ", Chat: "x"},
	} {
		got, err := queryOf(args)
		if _, name := nameOf(args); err != nil || got != want || name {
			t.Errorf("%+v: %s, %v", args, got, err)
		}
	}
	if got, err := queryOf(chat.Filter{ExternalID: "half \xe9"}); !errors.Is(err, chat.ErrInvalid) {
		t.Errorf("bytes that are no UTF-8 become %s, %v: another text", got, err)
	}
	if name, ok := nameOf(chat.ArchiveName("a")); !ok || name != "a" {
		t.Errorf("a name of an archive: %q, %v", name, ok)
	}
}
