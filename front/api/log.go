package api

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"strconv"

	"github.com/danielgtaylor/huma/v2"

	"github.com/chatd/chatd/chat"
)

// eventType is the media type of a followed log: server-sent events, each with a chat.Log in JSON
// as data and the next cursor as id, so that Last-Event-ID resumes after a broken connection. A
// comment is sent when nothing is new.
const eventType = "text/event-stream"

// problemEvent is the event that says why a stream ended.
const problemEvent = "problem"

// serveLog registers a route of its own because the answer may not end.
func serveLog(s *Server, a huma.API, op huma.Operation) {
	op.Parameters = []*huma.Param{
		chatParam,
		param("query", "since", "integer", "A cursor; from the first byte that is kept if it is absent."),
		param("query", "follow", "boolean", "Go on as the terminal prints, as server-sent events."),
		param("header", "Last-Event-ID", "integer", "A cursor, in the place of since."),
	}
	content := jsonContent(a, chat.Log{})
	maps.Copy(content, textContent(eventType))
	op.Responses = problemResponse()
	op.Responses["200"] = &huma.Response{Description: "A piece, or a stream of them.", Content: content}
	s.serveBeside(a, op, s.getLog)
}

func (s *Server) getLog(w http.ResponseWriter, r *http.Request) {
	id, since, follow, err := logOf(r)
	if err != nil {
		s.refuse(w, s.problem(r.Context(), err))
		return
	}
	if follow {
		s.followLog(w, r, id, since)
		return
	}
	l, err := s.opt.Chats.Log(r.Context(), id, since)
	if err != nil {
		s.refuse(w, s.problem(r.Context(), err))
		return
	}
	s.answerJSON(w, r, http.StatusOK, l)
}

// logOf reads the chat, the query and Last-Event-ID.
func logOf(r *http.Request) (id chat.ID, since int64, follow bool, err error) {
	since = -1
	if id, err = chat.ParseID(r.PathValue("id")); err != nil {
		return id, since, false, err
	}
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return id, since, false, invalid(http.StatusBadRequest, "query", "cannot use the query: %v", err)
	}
	for name := range query {
		value := query.Get(name)
		switch name {
		case "since":
			since, err = cursorOf("since", value)
		case "follow":
			if follow = value == "true"; value != "true" && value != "false" {
				err = invalid(http.StatusBadRequest, name, "cannot use follow %s: want true or false", chat.Quote(value))
			}
		default:
			err = invalid(http.StatusBadRequest, "query", "cannot use the query: unknown parameter %s", chat.Quote(name))
		}
		if err != nil {
			return id, since, false, err
		}
	}
	if last := r.Header.Get("Last-Event-ID"); last != "" {
		since, err = cursorOf("Last-Event-ID", last)
	}
	return id, since, follow, err
}

func cursorOf(name, value string) (int64, error) {
	n, err := strconv.ParseInt(value, 10, 64)
	if err != nil || n < 0 {
		return 0, invalid(http.StatusBadRequest, name, "cannot use %s %s: want a cursor, a number from 0", name, chat.Quote(value))
	}
	return n, nil
}

// followLog sends pieces as they are printed. A slow client gets what is still kept by then, and
// how much is lost; it does not hold up the chat or other clients.
func (s *Server) followLog(w http.ResponseWriter, r *http.Request, id chat.ID, since int64) {
	leave, err := s.enterStream(r)
	defer leave()
	if err != nil {
		s.refuse(w, s.problem(r.Context(), err))
		return
	}
	e := events{stream: stream{w: w, timeout: s.opt.WriteTimeout, kind: eventType}}
	err = s.opt.Chats.FollowLog(r.Context(), id, since, func(l chat.Log) error {
		if len(l.Bytes()) == 0 && e.begun {
			return e.send([]byte(": nothing new\n\n"))
		}
		return e.event("", l.Cursor, l)
	})
	switch p := s.problem(r.Context(), err); {
	case !e.begun:
		s.refuse(w, p)
	case e.failed == nil && r.Context().Err() == nil:
		_ = e.event(problemEvent, -1, p) // a client that stopped reading gets no further answer
	}
}

// events writes server-sent events.
type events struct {
	stream
	failed error
}

// event sends one event; an id below 0 is left out. Encoded JSON has no line ends.
func (e *events) event(name string, id int64, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("cannot write an event: %w", err)
	}
	var b bytes.Buffer
	if name != "" {
		fmt.Fprintf(&b, "event: %s\n", name)
	}
	if id >= 0 {
		fmt.Fprintf(&b, "id: %d\n", id)
	}
	fmt.Fprintf(&b, "data: %s\n\n", data)
	return e.send(b.Bytes())
}

func (e *events) send(text []byte) error {
	if err := e.stream.send(text); err != nil {
		e.failed = fmt.Errorf("cannot send an event: %w", err)
	}
	return e.failed
}

// Log is GET /v1/chats/{id}/log.
func (c *Client) Log(ctx context.Context, id chat.ID, since int64) (chat.Log, error) {
	return askFor[chat.Log](ctx, c, readLog, target{chat: id, query: logQuery(since, false)}, nil)
}

func logQuery(since int64, follow bool) string {
	q := url.Values{}
	if since >= 0 {
		q.Set("since", strconv.FormatInt(since, 10))
	}
	if follow {
		q.Set("follow", "true")
	}
	if len(q) == 0 {
		return ""
	}
	return "?" + q.Encode()
}

// maxEvent bounds a line of an event that the client reads.
const maxEvent = 8 * chat.MaxLogPage

// FollowLog is GET /v1/chats/{id}/log?follow=true. If the connection breaks, it returns the error;
// the last piece's cursor resumes the log.
func (c *Client) FollowLog(ctx context.Context, id chat.ID, since int64, out func(chat.Log) error) error {
	t := target{chat: id, query: logQuery(since, true)}
	res, err := c.sendFor(ctx, readLog, t, eventType, nil)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	return readEvents(res.Body, out)
}

// readEvents gives each piece to out, until out has an error or the stream ends, which is
// always an error too.
func readEvents(r io.Reader, out func(chat.Log) error) error {
	lines := bufio.NewScanner(r)
	lines.Buffer(make([]byte, 64<<10), maxEvent)
	problem := false
	for lines.Scan() {
		name, value, _ := bytes.Cut(lines.Bytes(), []byte(": "))
		switch string(name) {
		case "event":
			problem = string(value) == problemEvent
		case "data":
			if problem {
				p := &Problem{}
				return errors.Join(json.Unmarshal(value, p), p)
			}
			var l chat.Log
			if err := json.Unmarshal(value, &l); err != nil {
				return fmt.Errorf("cannot read chatd's answer: %w", err)
			}
			if err := out(l); err != nil {
				return err
			}
		case "": // the end of an event, or a comment
			problem = false
		}
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("cannot follow the log any more: %w", err)
	}
	return fmt.Errorf("cannot follow the log any more: %w: %w", io.ErrUnexpectedEOF, chat.ErrBusy)
}
