package broker

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/front/api/apitest"
	"github.com/chatd/chatd/internal/verbs"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// longLists is a chatd-root with lists longer than what a socket takes.
type longLists struct {
	verbs.Root
	text  string
	begun atomic.Int32
}

func (l *longLists) List(context.Context, chat.Filter) (chat.Page, error) {
	l.begun.Add(1)
	return chat.Page{Chats: []chat.Chat{{Home: l.text}}}, nil
}

func (l *longLists) Archives(context.Context, chat.ArchiveFilter) ([]chat.Archive, error) {
	return []chat.Archive{{Owner: l.text}}, nil
}

// TestHostileLists: a front that reads no list holds maxLists pages of chatd-root, and of other
// answers maxUnread bytes; when it hangs up, the next is answered.
func TestHostileLists(t *testing.T) {
	long := &longLists{Root: apitest.New(), text: strings.Repeat("x", 4<<20)}
	d := serveRoot(t, long)
	fds, routines := held(t)
	ask := func(verb string) *link {
		l := must.Get(d.open())(t)
		if err := l.send(requestEnd, []byte(`{"verb":"`+verb+`","caller":{"name":"root","role":"operator"},"args":{}}`)); err != nil {
			t.Fatal(err)
		}
		return l
	}
	var unread []*link
	for range 50 {
		unread = append(unread, ask("list"))
	}
	busy := 0
	for range maxUnread>>22 + 10 {
		l := ask("list_archives")
		unread = append(unread, l)
		must.Do(t, l.recv(func(k kind, _ []byte) error {
			if k == failed {
				busy++
			}
			return nil
		}))
	}
	n := long.begun.Load()
	expect.True(t, n == maxLists, "%d lists exist, want %d", n, maxLists)
	expect.True(t, busy >= 10, "%d answers are given up, want 10 or more", busy)
	for _, l := range unread {
		_ = l.close()
	}
	d.sound(t)
	leaksNothing(t, fds, routines)
	expect.NoError(t, d.end(t))
}
