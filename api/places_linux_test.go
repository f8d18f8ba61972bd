package api

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"os"
	"sync"
	"syscall"
	"testing"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/files"
)

// TestPlaces: each caller has his own, also under two roles; who has none shares with all others.
func TestPlaces(t *testing.T) {
	p := newPlaces(1)
	one, other := chat.Caller{Name: "a", UID: 1, Role: chat.RoleBridge}, chat.Caller{Name: "b", UID: 2, Role: chat.RoleBridge}
	leave, ok := p.enter(one)
	if _, again := p.enter(one); !ok || again {
		t.Errorf("the first %t, the second %t", ok, again)
	}
	for _, c := range []chat.Caller{other, {UID: 1, Role: chat.RoleOperator}, {UID: 3}} {
		if _, ok := p.enter(c); !ok {
			t.Errorf("%+v has no place", c)
		}
	}
	if _, ok := p.enter(chat.Caller{UID: 4}); ok {
		t.Error("strangers have a place each")
	}
	leave()
	if leave, ok = p.enter(one); !ok {
		t.Error("the place is not given back")
	}
	if leave(); len(p.taken) != 3 {
		t.Errorf("who has none any more is remembered: %v", p.taken)
	}
}

// TestAttackPlaces: a bridge that takes every place there is, for requests and for streams, and
// never lets one go, has another bridge and the operators miss none.
func TestAttackPlaces(t *testing.T) {
	needRoot(t)
	opt := peerServerOpt
	opt.MaxRequests, opt.MaxStreams = 2, 1
	socket, mem := start(t, opt)
	if err := os.Chmod(socket, 0o666); err != nil {
		t.Fatal(err)
	}
	made := map[bool]string{}
	for other, cred := range map[bool]*syscall.Credential{false: bridgeCred, true: bridge2Cred} {
		var c chat.Chat
		if err := json.Unmarshal([]byte(as(t, socket, cred, post("/v1/chats", `{"external_id":"a"}`))[0].Body), &c); err != nil {
			t.Fatal(err)
		}
		made[other] = string(c.ID)
	}
	in, release := make(chan struct{}, 2), make(chan struct{})
	letGo := sync.OnceFunc(func() { close(release) })
	t.Cleanup(letGo)
	hold := true
	mem.OnRun = func(context.Context, chat.RunSpec) (chat.RunResult, error) {
		in <- struct{}{}
		<-release
		return chat.RunResult{}, nil
	}
	mem.OnFile(func(_ context.Context, _ files.Tool, begin files.Begin, _ io.Reader) (files.Answer, error) {
		if hold {
			hold = false
			in <- struct{}{}
			<-release
		}
		_, err := io.Copy(begin(files.Answer{}), bytes.NewReader(nil))
		return files.Answer{}, err
	})
	greedy := make(chan struct{}, 2)
	for _, request := range []string{post("/v1/chats/"+made[false]+"/runs", `{"command":"x"}`), get("/v1/chats/" + made[false] + "/files/content?path=f")} {
		go func() { as(t, socket, bridgeCred, request); greedy <- struct{}{} }()
		<-in
	}
	for _, who := range []*syscall.Credential{bridge2Cred, operatorCred} {
		for i, a := range as(t, socket, who, get("/v1/chats"), get("/v1/chats/"+made[true]+"/files/content?path=f")) {
			if a.Status != 200 {
				t.Errorf("uid %d, %d: %d %s", who.Uid, i, a.Status, a.Body)
			}
		}
	}
	if a := as(t, socket, bridgeCred, get("/v1/chats"))[0]; a.Status != 503 {
		t.Errorf("the bridge itself: %d %s", a.Status, a.Body)
	}
	letGo()
	<-greedy
	<-greedy
}
