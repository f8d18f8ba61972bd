package api

import (
	"context"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/front/api/apitest"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// longLists are chats whose list is longer than what a socket takes.
type longLists struct {
	*apitest.Memory
	begun atomic.Int32 // by operators
}

func (l *longLists) List(ctx context.Context, _ chat.Filter) (chat.Page, error) {
	if chat.CallerFrom(ctx).Role == chat.RoleOperator {
		l.begun.Add(1)
	}
	return chat.Page{Chats: []chat.Chat{{Home: strings.Repeat("x", 1<<20)}}}, nil
}

// TestAttackUnreadLists: of 500 lists that a caller asks for and does not read, a few exist at a
// time, and another caller's lists are answered.
func TestAttackUnreadLists(t *testing.T) {
	needRoot(t)
	long := &longLists{Memory: apitest.New()}
	opt := peerServerOpt
	opt.WriteTimeout = generous
	socket := startOn(t, opt, long)
	must.Do(t, os.Chmod(socket, 0o666))
	for range 500 {
		c := must.Get(net.Dial("unix", socket))(t)
		defer c.Close()
		must.Do(t, expect.Err(c.Write([]byte(get("/v1/chats")))))
	}
	for range 3 {
		for _, who := range []*syscall.Credential{bridgeCred, bridge2Cred} {
			a := as(t, socket, who, get("/v1/chats"))[0]
			expect.True(t, a.Status == 200, "uid %d: %d %.200s", who.Uid, a.Status, a.Body)
		}
	}
	n := long.begun.Load()
	expect.True(t, n == maxListsEach, "%d lists of one caller exist, want %d", n, maxListsEach)
}
