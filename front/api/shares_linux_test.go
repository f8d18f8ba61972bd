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
	"github.com/chatd/chatd/internal/filewire"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// TestHolders: each caller with a role has its own share; callers without a role have one together.
func TestHolders(t *testing.T) {
	one := chat.Caller{Name: "a", UID: 1, Role: chat.RoleBridge}
	for _, c := range []chat.Caller{{Name: "b", UID: 2, Role: chat.RoleBridge}, {UID: 3}} {
		expect.True(t, holder(one) != holder(c), "%+v has the share of %+v", c, one)
	}
	expect.True(t, holder(chat.Caller{UID: 3}) == holder(chat.Caller{UID: 4}),
		"strangers have a share each")
}

// TestAttackShares: a bridge that takes every request and stream it may have, and never releases
// one, leaves another bridge and the operators all of theirs.
func TestAttackShares(t *testing.T) {
	needRoot(t)
	opt := peerServerOpt
	opt.MaxRequests, opt.MaxStreams = 2, 1
	socket, mem := start(t, opt)
	must.Do(t, os.Chmod(socket, 0o666))
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
	mem.OnFile(func(_ context.Context, _ filewire.Tool, begin filewire.Begin, _ io.Reader) (filewire.Answer, error) {
		if hold {
			hold = false
			in <- struct{}{}
			<-release
		}
		_, err := io.Copy(begin(filewire.Answer{}), bytes.NewReader(nil))
		return filewire.Answer{}, err
	})
	greedy := make(chan struct{}, 2)
	for _, request := range []string{post("/v1/chats/"+made[false]+"/runs", `{"command":"x"}`), get("/v1/chats/" + made[false] + "/files/content?path=f")} {
		go func() { as(t, socket, bridgeCred, request); greedy <- struct{}{} }()
		<-in
	}
	for _, who := range []*syscall.Credential{bridge2Cred, operatorCred} {
		for i, a := range as(t, socket, who, get("/v1/chats"), get("/v1/chats/"+made[true]+"/files/content?path=f")) {
			expect.True(t, a.Status == 200, "uid %d, %d: %d %s", who.Uid, i, a.Status, a.Body)
		}
	}
	if a := as(t, socket, bridgeCred, get("/v1/chats"))[0]; a.Status != 503 {
		t.Errorf("the bridge itself: %d %s", a.Status, a.Body)
	}
	letGo()
	<-greedy
	<-greedy
}
