package apitest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"

	"github.com/chatd/chatd/chat"
)

// LabelChats is the part of verbs.Chats that [Labels] tries.
type LabelChats interface {
	Create(context.Context, chat.Spec) (chat.Chat, bool, error)
	Get(context.Context, chat.ID) (chat.Chat, error)
	List(context.Context, chat.Filter) (chat.Page, error)
	Patch(context.Context, chat.ID, chat.Patch) (chat.Chat, error)
}

// Labels tries everything that callers may expect of labels on an implementation of
// verbs.Chats, with a chat that is asleep, which it leaves there.
func Labels(ctx context.Context, t *testing.T, c LabelChats) chat.Chat {
	t.Helper()
	asleep := false
	spec := chat.Spec{ExternalID: "labels of " + t.Name(), Awake: &asleep,
		Labels: map[string]string{"a": "1", "b": "2"}}
	made, created, err := c.Create(ctx, spec)
	if err != nil || !created || made.Ignored != nil {
		t.Fatalf("create: %+v %v %v", made, created, err)
	}
	text := func(s string) *string { return &s }
	for _, step := range []struct {
		do   chat.Patch
		want map[string]string
	}{
		{chat.Patch{Labels: map[string]*string{"a": text("one"), "c": text("")}},
			map[string]string{"a": "one", "b": "2", "c": ""}},
		{chat.Patch{Labels: map[string]*string{"b": nil, "none": nil}},
			map[string]string{"a": "one", "c": ""}},
		{chat.Patch{Labels: map[string]*string{}}, map[string]string{"a": "one", "c": ""}},
		{chat.Patch{NoLabels: true}, nil},
		{chat.Patch{Labels: map[string]*string{"a": text("1"), "x": text("é\n💬")}},
			map[string]string{"a": "1", "x": "é\n💬"}},
	} {
		got, err := c.Patch(ctx, made.ID, step.do)
		if err != nil || got.ID != made.ID || !maps.Equal(got.Labels, step.want) {
			t.Errorf("%+v: %v, %v", step.do, got.Labels, err)
		}
		if got, err := c.Get(ctx, made.ID); err != nil || !maps.Equal(got.Labels, step.want) {
			t.Errorf("%+v: shown as %v, %v", step.do, got.Labels, err)
		}
	}
	if page, err := c.List(ctx, chat.Filter{Label: "a=1"}); err != nil ||
		!slices.ContainsFunc(page.Chats, func(c chat.Chat) bool { return c.ID == made.ID }) {
		t.Errorf("not found by its label: %v", err)
	}
	found, created, err := c.Create(ctx, spec)
	if err != nil || created || !slices.Equal(found.Ignored, []string{"labels.b"}) ||
		found.Labels["a"] != "1" || found.Labels["b"] != "" {
		t.Errorf("create again: %+v %v %v", found, created, err)
	}
	labelsRefused(ctx, t, c, made.ID)
	simultaneousLabels(ctx, t, c, made.ID)
	return made
}

func labelsRefused(ctx context.Context, t *testing.T, c LabelChats, id chat.ID) {
	t.Helper()
	value, long := "v", string(make([]byte, chat.MaxLabelValue+1))
	many := map[string]*string{}
	for i := range chat.MaxLabels + 1 {
		many[fmt.Sprint("k", i)] = &value
	}
	for name, labels := range map[string]map[string]*string{"nothing": nil, "too many": many,
		"a name": {"../x": &value}, "a value": {"a": &long}} {
		if _, err := c.Patch(ctx, id, chat.Patch{Labels: labels}); !errors.Is(err, chat.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := c.Patch(ctx, "0000000000000000", chat.Patch{NoLabels: true}); !errors.Is(err,
		chat.ErrNotFound) {
		t.Errorf("no such chat: %v", err)
	}
	if got, err := c.Get(ctx, id); err != nil || len(got.Labels) != 2 {
		t.Errorf("a change that is refused changed something: %v %v", got.Labels, err)
	}
}

// simultaneousLabels: of simultaneous changes to different labels none is lost.
func simultaneousLabels(ctx context.Context, t *testing.T, c LabelChats, id chat.ID) {
	t.Helper()
	var all sync.WaitGroup
	for i := range 16 {
		all.Go(func() {
			value := fmt.Sprint(i)
			if _, err := c.Patch(ctx, id,
				chat.Patch{Labels: map[string]*string{"at" + value: &value}}); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	got, err := c.Get(ctx, id)
	if err != nil || len(got.Labels) != 18 {
		t.Errorf("%d labels of 18: %v, %v", len(got.Labels), got.Labels, err)
	}
}
