package api

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/front/api/apitest"
	"github.com/chatd/chatd/internal/stream"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// longRuns are runs that printed more than a socket takes.
type longRuns struct{ *apitest.Memory }

func (longRuns) OpenRun(context.Context, chat.ID, string) (o stream.OpenRun, err error) {
	o = stream.OpenRun{Run: chat.Run{ID: "r", OutputMax: 1 << 20}, Max: 1 << 20}
	for _, to := range []**os.File{&o.Stdout, &o.Stderr} {
		f, err := os.CreateTemp("", "chatd-stream-")
		if err != nil {
			return o, err
		}
		*to = f
		if err := os.Remove(f.Name()); err != nil {
			return o, err
		}
	}
	_, err = stream.NewFile(o.Stdout, o.Max).Write(bytes.Repeat([]byte("x"), 1<<20))
	return o, err
}

// TestAttackUnreadAnswers: of 100 long answers that a caller asks for and does not read, this many exist
// as fit into its share; the others are refused as busy, an act that was done is not, and another
// caller is answered.
func TestAttackUnreadAnswers(t *testing.T) {
	needRoot(t)
	opt := peerServerOpt
	opt.WriteTimeout = generous
	mem := apitest.New()
	mem.OnRun = func(context.Context, chat.RunSpec) (chat.RunResult, error) { // an act that prints as much
		return chat.RunResult{Stdout: strings.Repeat("x", 1<<20)}, nil
	}
	socket := startOn(t, opt, longRuns{mem})
	must.Do(t, os.Chmod(socket, 0o666))
	var own chat.Chat
	made := as(t, socket, operatorCred, post("/v1/chats", `{"external_id":"a"}`))[0]
	must.Do(t, json.Unmarshal([]byte(made.Body), &own))
	const path = "/v1/chats/0123456789abcdef/runs/00112233445566aa"
	statuses := make(chan int, 100)
	for range cap(statuses) {
		c := must.Get(net.Dial("unix", socket))(t)
		defer c.Close()
		must.Do(t, expect.Err(c.Write([]byte(get(path)))))
		go func() {
			r, err := http.ReadResponse(bufio.NewReader(c), nil) // the header alone
			if err != nil {
				statuses <- 0
				return
			}
			statuses <- r.StatusCode
		}()
	}
	all := map[int]int{}
	for range cap(statuses) {
		all[<-statuses]++
	}
	expect.True(t, all[200]+all[503] == cap(statuses) && all[200] != 0 && all[200] <= 32,
		"answers by status: %v", all)
	act := must.Get(net.Dial("unix", socket))(t)
	defer act.Close()
	must.Do(t, expect.Err(act.Write([]byte(post("/v1/chats/"+string(own.ID)+"/runs", `{"command": "x"}`)))))
	if r, err := http.ReadResponse(bufio.NewReader(act), nil); err != nil || r.StatusCode != 200 {
		t.Errorf("an act that was done: %+v, %v", r, err)
	}
	a := as(t, socket, bridgeCred, get(path))[0]
	expect.True(t, a.Status == 200, "another caller: %d %.200s", a.Status, a.Body)
}
