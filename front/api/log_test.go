package api

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

func TestLog(t *testing.T) {
	socket, _ := start(t, ServerOptions{})
	c, ctx := clientAt(t, socket), t.Context()
	made := must.First(c.Create(ctx, chat.Spec{ExternalID: "a"}))(t)
	wait := chat.Input{Text: "false", Enter: true, Wait: &chat.Wait{Until: chat.UntilPrompt}}
	if got, err := c.InputWait(ctx, made.ID, wait); err != nil || got.Text != "false\n" || got.Exit == nil || *got.Exit != 1 || got.Until != chat.UntilPrompt {
		t.Errorf("%+v, %v", got, err)
	}
	expect.Is(t, expect.Err(c.InputWait(ctx, made.ID, chat.Input{Text: "x"})), chat.ErrInvalid,
		"without a wait")
	if s, err := c.ScreenWith(ctx, made.ID, chat.ScreenSpec{Styles: true}); err != nil || !strings.HasPrefix(s.Text, "\x1b[32m") {
		t.Errorf("%+v, %v", s, err)
	}
	if l, err := c.Log(ctx, made.ID, 2); err != nil || l.Text != "lse\n" || l.From != 2 || l.Cursor != 6 {
		t.Errorf("%+v, %v", l, err)
	}
	expect.Is(t, expect.Err(c.Log(ctx, made.ID, 7)), chat.ErrInvalid, "behind the end")
	for query, want := range map[string]string{
		"?since=-1": "expected number", "?since=x": "invalid integer", "?follow=yes": "invalid boolean", "?cursor=1": "unknown query parameter",
		"?since=": "want a value", "?follow=": "want a value",
		"?since=1&since=2": "stands twice", "?since=99999999999999999999": "invalid integer",
	} {
		if got := raw(t, socket, "GET /v1/chats/"+string(made.ID)+"/log"+query+" HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"); got.status != 400 || !strings.Contains(got.body, want) {
			t.Errorf("%s: %+v, want %q", query, got, want)
		}
	}
}

// TestFollowLog: pieces arrive as they are printed, each with the cursor to resume from; the end of
// the chat is reported, and a reader that goes away ends the stream.
func TestFollowLog(t *testing.T) {
	socket, mem := start(t, ServerOptions{MaxStreams: 1})
	c, ctx := clientAt(t, socket), t.Context()
	made, _, err := c.Create(ctx, chat.Spec{ExternalID: "a"})
	must.Do(t, err)
	typeIn := func(text string) {
		expect.NoError(t, c.Input(ctx, made.ID, chat.Input{Text: text}))
	}
	typeIn("one")
	var got strings.Builder
	err = c.FollowLog(ctx, made.ID, 1, func(l chat.Log) error {
		got.WriteString(l.Text)
		switch got.String() {
		case "ne":
			err := c.FollowLog(ctx, made.ID, 0, nil)
			expect.True(t, errors.Is(err, chat.ErrBusy), "a stream too many: %v", err)
			typeIn("two")
		case "netwo":
			return mem.Reap(chat.WithCaller(ctx, chat.Caller{Role: chat.RoleOperator}), made.ID)
		}
		return nil
	})
	expect.True(t, errors.Is(err, chat.ErrNotFound) && got.String() == "netwo",
		"%q, then %v", got.String(), err)
	made = must.First(c.Create(ctx, chat.Spec{ExternalID: "b"}))(t)
	for deadline := time.Now().Add(generous); ; time.Sleep(10 * time.Millisecond) { // the place of the first is free again
		gone, cancel := context.WithCancel(ctx)
		err := c.FollowLog(gone, made.ID, 0, func(chat.Log) error { cancel(); return nil })
		cancel()
		if errors.Is(err, context.Canceled) {
			break // a reader that goes away
		}
		must.True(t, !time.Now().After(deadline),
			"the stream of a chat that is gone is never free again: %v", err)
	}
	last := raw(t, socket, "GET /v1/chats/"+string(made.ID)+"/log HTTP/1.1\r\nHost: x\r\nLast-Event-ID: 5\r\nConnection: close\r\n\r\n")
	expect.True(t, last.status == 400 && strings.Contains(last.body, "cursor 5"),
		"Last-Event-ID: %+v", last)
}
