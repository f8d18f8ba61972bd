package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// TestOutputMax: output_max has the same bounds in every request that accepts it; streamed runs and
// schedules refuse it.
func TestOutputMax(t *testing.T) {
	socket, mem := start(t, ServerOptions{})
	c := clientAt(t, socket)
	made := must.First(c.Create(t.Context(), chat.Spec{ExternalID: "a"}))(t)
	at := "/v1/chats/" + string(made.ID)
	frames := func(body string) string {
		return strings.Replace(post(at+"/runs", body), "\r\n", "\r\nAccept: application/x-ndjson\r\n", 1)
	}
	for _, g := range []struct {
		request string
		status  int
		says    string
	}{
		{post(at+"/runs", `{"command":"max","output_max":2048}`), 200, `"stdout":"2048\n"`},
		{post(at+"/runs", `{"command":"max","output_max":0}`), 200, `"stdout":"1048576\n"`},
		{post(at+"/runs", `{"command":"max","background":true,"output_max":2048}`), 202, `"output_max":2048`},
		{post(at+"/runs", `{"command":"max","background":true}`), 202, `"output_max":1048576`},
		{post(at+"/runs", `{"command":"x","output_max":1023}`), 400, "output_max 1023: want 1024 to 4194304 bytes"},
		{post(at+"/runs", `{"command":"x","output_max":4194305}`), 400, "output_max"},
		{post(at+"/runs", `{"command":"x","output_max":-1}`), 400, "output_max"},
		{post(at+"/runs", `{"command":"x","output_max":"1MiB"}`), 400, "output_max"},
		{post(at+"/runs", `{"command":"x","background":true,"output_max":4194305}`), 400, "output_max: expected number <= 4.194304e+06"},
		{frames(`{"command":"x","output_max":2048}`), 400, "streamed output is passed on whole"},
		{frames(`{"command":"x","output_max":1}`), 400, "output_max 1: "},
		{frames(`{"command":"max","background":true,"output_max":2048}`), 202, `"output_max":2048`},
		{post(at+"/schedules", `{"every":"1h","command":"x","output_max":2048}`), 400, "output_max"},
	} {
		a := raw(t, socket, g.request)
		expect.True(t, a.status == g.status && strings.Contains(a.body, g.says),
			"%.200q: %d %s", g.request, a.status, a.body)
	}
	mem.OnRun = func(context.Context, chat.RunSpec) (chat.RunResult, error) {
		return chat.RunResult{}, errors.New("it ran")
	}
	if _, err := c.RunTo(t.Context(), made.ID, chat.RunSpec{Command: "x", OutputMax: 2048}, func(string, []byte) {}); !errors.Is(err, chat.ErrInvalid) {
		t.Errorf("the client, streamed: %v", err)
	}
}

// TestOutputMaxIsRead: the client reads the longest answer of a run.
func TestOutputMaxIsRead(t *testing.T) {
	socket, mem := start(t, ServerOptions{})
	c := clientAt(t, socket)
	made := must.First(c.Create(t.Context(), chat.Spec{ExternalID: "a"}))(t)
	worst := strings.Repeat("\x01", chat.MaxOutputMax)
	mem.OnRun = func(context.Context, chat.RunSpec) (chat.RunResult, error) {
		return chat.RunResult{Stdout: worst, Stderr: worst}, nil
	}
	r, err := c.Run(t.Context(), made.ID, chat.RunSpec{Command: "x", OutputMax: chat.MaxOutputMax})
	expect.True(t, err == nil && r.Stdout == worst && r.Stderr == worst,
		"%d and %d bytes, %v", len(r.Stdout), len(r.Stderr), err)
}

// TestOutputMaxInOpenAPI: the description states the bounds that the server applies.
func TestOutputMaxInOpenAPI(t *testing.T) {
	socket, _ := start(t, ServerOptions{})
	var doc struct {
		Components struct {
			Schemas map[string]struct {
				Properties map[string]struct {
					Type             any
					Description      string
					Minimum, Maximum *float64
				}
			}
		}
	}
	must.Do(t, json.Unmarshal([]byte(raw(t, socket, get("/openapi.json")).body), &doc))
	p := doc.Components.Schemas["RunSpec"].Properties["output_max"]
	want := fmt.Sprintf("%d to %d; 0 means %d", chat.MinOutputMax, chat.MaxOutputMax, chat.DefaultOutputMax)
	if p.Type != "integer" || p.Maximum == nil || *p.Maximum != chat.MaxOutputMax || p.Minimum == nil || *p.Minimum != 0 || !strings.Contains(p.Description, want) {
		t.Errorf("%+v", p)
	}
	if p := doc.Components.Schemas["Run"].Properties["output_max"]; p.Type != "integer" {
		t.Errorf("a run that is shown: %+v", p)
	}
	if p, there := doc.Components.Schemas["ScheduleSpec"].Properties["output_max"]; there {
		t.Errorf("a schedule: %+v", p)
	}
}
