package api

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/front/api/apitest"
	"github.com/chatd/chatd/internal/quota"
	"github.com/chatd/chatd/test/expect"
)

// spentChats refuses a create because a share is used up.
type spentChats struct {
	*apitest.Memory
	err error
}

func (c spentChats) Create(context.Context, chat.Spec) (chat.Chat, bool, error) {
	return chat.Chat{}, false, c.err
}

// TestRetryAfter: a caller is told which share is spent, and when to retry if time alone frees
// some.
func TestRetryAfter(t *testing.T) {
	for retry, err := range map[string]error{
		"":  &quota.SpentError{Share: quota.Chats, Owner: "ada"},
		"3": &quota.SpentError{Share: quota.Creates, Owner: "ada", After: 2500 * time.Millisecond},
		"1": chat.ErrBusy,
	} {
		socket := startOn(t, ServerOptions{}, spentChats{apitest.New(), err})
		g := raw(t, socket, post("/v1/chats", `{"external_id":"a"}`))
		expect.True(t, g.status == 503 && g.problem.Kind == "busy" && g.header.Get("Retry-After") == retry,
			"%v: got %d %v %s, want Retry-After %q", err, g.status, g.header, g.body, retry)
		if want := retry != "1"; strings.HasPrefix(g.problem.Share, "owner_shares.") != want {
			t.Errorf("%v: share %q", err, g.problem.Share)
		}
	}
}
