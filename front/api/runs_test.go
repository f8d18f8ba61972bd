package api

import (
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// TestRuns: a background run over HTTP: started, listed, written to, followed, read,
// signalled, ended.
func TestRuns(t *testing.T) {
	socket, _ := start(t, ServerOptions{})
	c := clientAt(t, socket)
	ctx := t.Context()
	made := must.First(c.Create(ctx, chat.Spec{ExternalID: "a"}))(t)
	r, err := c.StartRun(ctx, made.ID, chat.RunSpec{Command: "wait", OpenStdin: true})
	must.True(t, err == nil && r.State == chat.RunRunning && r.Background, "%+v, %v", r, err)
	if list, err := c.Runs(ctx, made.ID); err != nil || len(list.Runs) != 1 || list.Runs[0].ID != r.ID {
		t.Errorf("%+v, %v", list, err)
	}
	for i, piece := range []string{"one ", "two"} {
		must.Do(t, c.WriteStdin(ctx, made.ID, r.ID, io.NopCloser(strings.NewReader(piece)), i == 1))
	}
	var out strings.Builder
	res, err := c.FollowRun(ctx, made.ID, r.ID, "", func(f chat.Frame) { out.Write(f.Bytes()) })
	if err != nil || res.Exit != 0 || res.StdoutBytes != 7 || out.String() != "one two" {
		t.Errorf("%+v, %v, %q", res, err, &out)
	}
	got, err := c.ReadRun(ctx, made.ID, r.ID, "4-0")
	expect.True(t, err == nil && len(got.Frames) == 1 && got.Frames[0].Text == "two" && got.Cursor == "7-0",
		"%+v, %v", got, err)
	r = must.Get(c.StartRun(ctx, made.ID, chat.RunSpec{Command: "wait"}))(t)
	expect.NoError(t, c.SignalRun(ctx, made.ID, r.ID, chat.RunSignal{Signal: "INT"}))
	if shown, err := c.ShowRun(ctx, made.ID, r.ID); err != nil || shown.Result == nil || shown.Result.Signal != "SIGINT" {
		t.Errorf("%+v, %v", shown, err)
	}
	expect.NoError(t, c.EndRun(ctx, made.ID, r.ID))
}

// TestRunsRefused: an invalid field is named, and an unknown run is not found.
func TestRunsRefused(t *testing.T) {
	socket, _ := start(t, ServerOptions{})
	c := clientAt(t, socket)
	ctx := t.Context()
	made := must.First(c.Create(ctx, chat.Spec{ExternalID: "a"}))(t)
	for _, run := range []string{"run-9", "", "..", "a/b", strings.Repeat("x", 100)} {
		_, err := c.ShowRun(ctx, made.ID, run)
		expect.True(t, errors.Is(err, chat.ErrNotFound), "%q: %v", run, err)
	}
	r := must.Get(c.StartRun(ctx, made.ID, chat.RunSpec{Command: "wait"}))(t)
	at := "/v1/chats/" + string(made.ID) + "/runs/" + r.ID
	for _, g := range []struct {
		request string
		status  int
		says    string
	}{
		{post(at+"/signal", `{"signal":"STOP"}`), 400, "want one of INT"},
		{post(at+"/signal", `{"signal":"WINCH"}`), 400, "tty"},
		{post(at+"/signal", `{"signal":"WINCH","tty":{"rows":0,"cols":5}}`), 400, ""},
		{get(at + "/output?cursor=x"), 400, "cursor"},
		{get(at + "/output?from=1"), 400, "from"},
		{post(at+"/stdin?open=true", ""), 400, "open"},
		{post(at+"/stdin?close=yes", ""), 400, "close"},
		{post("/v1/chats/"+string(made.ID)+"/runs", `{"command":"x","background":true,"stdin":"a","open_stdin":true}`), 400, "not both"},
		{post("/v1/chats/"+string(made.ID)+"/runs", `{"command":"x","background":1}`), 400, "background"},
		{post("/v1/chats/"+string(made.ID)+"/runs", `{"command":"x","tty":{"rows":24,"cols":9999}}`), 400, ""},
	} {
		a := raw(t, socket, g.request)
		expect.True(t, a.status == g.status && strings.Contains(a.body, g.says),
			"%.80q: %d %s", g.request, a.status, a.body)
	}
}
