package api

import (
	"bufio"
	"context"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/front/api/apitest"
)

// longRuns are runs that printed more than a socket takes.
type longRuns struct{ *apitest.Memory }

func (longRuns) ShowRun(context.Context, chat.ID, string) (chat.Run, error) {
	return chat.Run{ID: "r", Result: &chat.RunResult{Stdout: strings.Repeat("x", 1<<20)}}, nil
}

// Run is an act that prints as much.
func (longRuns) Run(context.Context, chat.ID, chat.RunSpec) (chat.RunResult, error) {
	return chat.RunResult{Stdout: strings.Repeat("x", 1<<20)}, nil
}

// TestAttackUnreadAnswers: of 100 long answers that a caller asks for and does not read, this many exist
// as fit into its share; the others are refused as busy, an act that was done is not, and another
// caller is answered.
func TestAttackUnreadAnswers(t *testing.T) {
	needRoot(t)
	opt := peerServerOpt
	opt.Chats, opt.WriteTimeout = longRuns{apitest.New()}, generous
	socket, _ := start(t, opt)
	if err := os.Chmod(socket, 0o666); err != nil {
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
	if _, err := act.Write([]byte(post("/v1/chats/"+someID+"/runs", `{"command": "x"}`))); err != nil {
		t.Fatal(err)
	}
	if r, err := http.ReadResponse(bufio.NewReader(act), nil); err != nil || r.StatusCode != 200 {
		t.Errorf("an act that was done: %+v, %v", r, err)
	}
	if a := as(t, socket, bridgeCred, get(path))[0]; a.Status != 200 {
		t.Errorf("another caller: %d %.200s", a.Status, a.Body)
	}
}
