package api

import (
	"encoding/json"
	"fmt"
	"maps"
	"mime"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/chatd/chatd/client"
	"github.com/chatd/chatd/internal/verbs"
	"github.com/chatd/chatd/test/must"
)

// description is what of openapi.json an answer is held against.
type description struct {
	Paths map[string]map[string]struct {
		Responses map[string]describedAnswer
		Security  *[]map[string][]string
	}
	Components struct {
		Responses       map[string]describedAnswer
		SecuritySchemes map[string]any
	}
	Servers  []map[string]any
	Security []map[string][]string
}

type describedAnswer struct {
	Ref         string `json:"$ref"`
	Description string
	Content     map[string]any
}

func descriptionOf(t testing.TB, s *Server) description {
	t.Helper()
	w := httptest.NewRecorder()
	s.mux.ServeHTTP(w, httptest.NewRequest("GET", "/openapi.json", nil))
	var d description
	must.Do(t, json.Unmarshal(w.Body.Bytes(), &d))
	return d
}

// has says whether a route may answer so, by its own word and not by default.
func (d description) has(r verbs.Row, status int, kind string) bool {
	res, ok := d.Paths[r.Path][strings.ToLower(r.Method)].Responses[fmt.Sprint(status)]
	if name, found := strings.CutPrefix(res.Ref, "#/components/responses/"); found {
		res, ok = d.Components.Responses[name]
	}
	if kind == "" {
		return ok && len(res.Content) == 0
	}
	return ok && res.Content[kind] != nil
}

// held serves as s does, and fails the test where an answer is not in the description.
func held(t *testing.T, s *Server) http.Handler {
	d := descriptionOf(t, s)
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		w := &watchedAnswer{ResponseWriter: rw}
		rt, missing := s.routeOf(r)
		s.handle(w, r)
		if missing == nil && w.status != 0 && !d.has(rt, w.status, w.kind) {
			t.Errorf("%s answers %d %q, which openapi.json does not say", rt.Pattern(), w.status, w.kind)
		}
	})
}

// watchedAnswer records the head of an answer.
type watchedAnswer struct {
	http.ResponseWriter
	status int
	kind   string
}

func (w *watchedAnswer) WriteHeader(status int) {
	if w.status == 0 {
		w.status = status
		w.kind, _, _ = mime.ParseMediaType(w.Header().Get("Content-Type"))
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *watchedAnswer) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// The description says of each route every status below 400 that it has, its problems, who may
// call it and where. What it should say is written here a second time, on purpose.
func TestDescription(t *testing.T) {
	s := NewServer(ServerOptions{})
	d := descriptionOf(t, s)
	want := map[string][]string{
		"remove_archive": {"204 "}, "reap": {"200 application/json", "204 "},
		"create": {"200 application/json", "201 application/json"}, "run_end": {"204 "}, "run_stdin": {"204 "}, "run_signal": {"204 "},
		"remove_schedule": {"204 "}, "add_schedule": {"201 application/json"}, "send": {"200 application/json", "204 "},
		"run":        {"200 application/json", "200 application/x-ndjson", "202 application/json"},
		"run_output": {"200 application/json", "200 application/x-ndjson"}, "attach": {"200 application/x-ndjson"},
		"log":        {"200 application/json", "200 text/event-stream"},
		"write_file": {"200 application/json", "201 application/json"}, "append_file": {"200 application/json", "201 application/json"},
		"put_content": {"200 application/json", "201 application/json"}, "get_content": {"200 application/octet-stream"},
		"mcp": {"200 application/json", "200 text/event-stream", "202 ", "400 application/json"},
	}
	for _, r := range verbs.Table {
		answers := want[r.Name]
		if answers == nil {
			answers = []string{"200 application/json"}
		}
		got := map[string]bool{}
		op := d.Paths[r.Path][strings.ToLower(r.Method)]
		for status, res := range op.Responses {
			if len(res.Content) == 0 && res.Ref == "" {
				got[status+" "] = true
			}
			for kind := range res.Content {
				if kind != client.ProblemType {
					got[status+" "+kind] = true
				}
			}
			if res.Description == "" && res.Ref == "" {
				t.Errorf("%s: %s has no description", r.Pattern(), status)
			}
		}
		if list := slices.Sorted(maps.Keys(got)); !slices.Equal(list, answers) {
			t.Errorf("%s: %q, want %q", r.Pattern(), list, answers)
		}
		for _, status := range refusals {
			if !d.has(r, status, client.ProblemType) {
				t.Errorf("%s: no problem of status %d", r.Pattern(), status)
			}
		}
		if open := op.Security != nil; open != (r.Access == verbs.Anyone) {
			t.Errorf("%s is for %s; security of its own: %v", r.Pattern(), r.Access, open)
		}
	}
	if len(d.Servers) != 1 || len(d.Security) != 1 || d.Components.SecuritySchemes["peer"] == nil {
		t.Errorf("servers %v, security %v, schemes %v", d.Servers, d.Security, d.Components.SecuritySchemes)
	}
}
