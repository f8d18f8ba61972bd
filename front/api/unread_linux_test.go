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
	if err := os.Chmod(socket, 0o666); err != nil {
		t.Fatal(err)
	}
	var own chat.Chat
	made := as(t, socket, operatorCred, post("/v1/chats", `{"external_id":"a"}`))[0]
	if err := json.Unmarshal([]byte(made.Body), &own); err != nil {
		t.Fatal(err)
	}
	const path = "/v1/chats/0123456789abcdef/runs/00112233445566aa"
	statuses := make(chan int, 100)
	for range cap(statuses) {
		c, err := net.Dial("unix", socket)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if _, err := c.Write([]byte(get(path))); err != nil {
			t.Fatal(err)
		}
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
	if all[200]+all[503] != cap(statuses) || all[200] == 0 || all[200] > 32 {
		t.Errorf("answers by status: %v", all)
	}
	act, err := net.Dial("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer act.Close()
	if _, err := act.Write([]byte(post("/v1/chats/"+string(own.ID)+"/runs", `{"command": "x"}`))); err != nil {
		t.Fatal(err)
	}
	if r, err := http.ReadResponse(bufio.NewReader(act), nil); err != nil || r.StatusCode != 200 {
		t.Errorf("an act that was done: %+v, %v", r, err)
	}
	if a := as(t, socket, bridgeCred, get(path))[0]; a.Status != 200 {
		t.Errorf("another caller: %d %.200s", a.Status, a.Body)
	}
}
