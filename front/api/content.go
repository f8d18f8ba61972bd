package api

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf16"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/client"
	"github.com/chatd/chatd/internal/filewire"
)

type (
	readContent struct {
		InChat
		WithValues
		Path   string `query:"path" required:"true" doc:"The file, absolute or below the home."`
		Offset int64  `query:"offset" doc:"The first byte."`
		Length int64  `query:"length" doc:"So many bytes; all if absent."`
		Line   int64  `query:"line" doc:"The first line, counted from 1."`
		Lines  int64  `query:"lines" doc:"So many lines."`
		Hash   bool   `query:"hash" doc:"Answer the SHA-256 too."`
	}
	writeContent struct {
		InChat
		WithValues
		Path   string `query:"path" required:"true" doc:"The file, absolute or below the home."`
		Append bool   `query:"append" doc:"Add to the end in place of replacing the file."`
		Hash   bool   `query:"hash" doc:"Answer the SHA-256 too."`
	}
)

// getContent sends a file. An error after the first byte ends the connection, so that half a file
// does not look like a whole one.
func (s *Server) getContent(w http.ResponseWriter, r *http.Request, in *readContent) {
	a := filewire.ReadFile{Path: in.Path, Offset: in.Offset, Length: in.Length, Line: in.Line,
		Lines: in.Lines, Hash: in.Hash, Stream: true}
	leave, err := s.enterStream(r)
	defer leave()
	if err != nil {
		s.refuse(w, s.problem(r.Context(), err))
		return
	}
	out := s.pieces(w, client.ByteType)
	out.head.Set("Content-Disposition", "attachment")
	out.head.Set("Trailer", client.AnswerTrailer)
	last, err := s.opt.Chats.ReadFile(r.Context(), in.ID, a, func(first filewire.Answer) io.Writer {
		out.head.Set(client.SizeHeader, strconv.FormatInt(first.Size, 10))
		return &out
	})
	switch {
	case err == nil:
		out.begin()
		w.Header().Set(client.AnswerTrailer, asciiJSON(client.NewFileAnswer(last, nil)))
	case out.begun:
		s.opt.Log.Debug("a download ended early", "chat", in.ID, "why", err)
		panic(http.ErrAbortHandler)
	default:
		s.refuse(w, s.problem(r.Context(), err))
	}
}

// asciiJSON encodes v in a form that a header allows.
func asciiJSON(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		return "{}" // plain fields always encode
	}
	var b strings.Builder
	for _, r := range string(text) {
		if r < 0x7f {
			b.WriteRune(r)
			continue
		}
		for _, u := range utf16.Encode([]rune{r}) {
			fmt.Fprintf(&b, `\u%04x`, u)
		}
	}
	return b.String()
}

// putContent takes a file as it comes. The peer is not asked to send any of it
// (Expect: 100-continue) before the tool may have it.
func (s *Server) putContent(w http.ResponseWriter, r *http.Request, in *writeContent) {
	a := filewire.WriteFile{Path: in.Path, Hash: in.Hash, Stream: true}
	err := s.checkUpload(r)
	leave, full := s.enterStream(r)
	defer leave()
	if err = errors.Join(err, full); err != nil {
		s.drain(w, r)
		s.refuse(w, s.problem(r.Context(), err))
		return
	}
	up := &upload{s: s, body: cutBody{r: r.Body, c: http.NewResponseController(w)}}
	write := s.opt.Chats.WriteFile
	if in.Append {
		write = s.opt.Chats.AppendFile
	}
	out, err := write(r.Context(), in.ID, a, up)
	if !up.stop() {
		s.drain(w, r)
	}
	s.answerJSON(w, r, madeStatus(out.Created), client.NewFileAnswer(out, nil), err)
}

// answerJSON answers with v, or with err if there is one.
func (s *Server) answerJSON(w http.ResponseWriter, r *http.Request, status int, v any, err error) {
	if err != nil {
		s.refuse(w, s.problem(r.Context(), err))
		return
	}
	w.Header().Set("Content-Type", client.JSONType)
	w.WriteHeader(status)
	_ = writeJSON(w, v) // a client that stopped reading gets no further answer
}

// checkUpload refuses an upload that its header fields already make invalid.
func (s *Server) checkUpload(r *http.Request) error {
	if r.ContentLength > s.opt.MaxFile {
		return s.fileTooLarge()
	}
	got := r.Header.Get("Content-Type")
	t, _, err := mime.ParseMediaType(got)
	if got != "" && (err != nil || t != client.ByteType) || r.Header.Get("Content-Encoding") != "" {
		return invalid(http.StatusUnsupportedMediaType, "",
			"cannot use the body: Content-Type %s: want %s, without Content-Encoding", chat.Quote(got),
			client.ByteType)
	}
	return nil
}

func (s *Server) fileTooLarge() *client.Problem {
	return invalid(http.StatusRequestEntityTooLarge, "",
		"cannot use the body: more than %d bytes, which is file_max", s.opt.MaxFile)
}

// upload is a body that is streamed: each piece has a deadline, and the whole at most a file's
// size.
type upload struct {
	s    *Server
	body cutBody

	mu    sync.Mutex
	total int64
	over  bool // no further Read is allowed
}

// Read waits for a piece.
func (u *upload) Read(p []byte) (int, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.over {
		return 0, os.ErrClosed
	}
	if err := u.body.c.SetReadDeadline(time.Now().Add(u.s.opt.BodyTimeout)); err != nil {
		return 0, fmt.Errorf("cannot read the body: %w", err)
	}
	n, err := u.body.Read(p)
	u.total += int64(n)
	switch {
	case u.total > u.s.opt.MaxFile:
		return 0, u.s.fileTooLarge()
	case errors.Is(err, os.ErrDeadlineExceeded):
		return 0, invalid(http.StatusRequestTimeout, "", "cannot read the body: nothing came for %s",
			u.s.opt.BodyTimeout)
	case err != nil && !errors.Is(err, io.EOF):
		return 0, invalid(http.StatusBadRequest, "", "cannot read the body: %v", err)
	}
	return n, err
}

// stop ends a Read that waits and refuses all later ones. It reports whether all of the
// body came.
func (u *upload) stop() bool {
	_ = u.body.Close() // otherwise the Read ends at its own deadline
	u.mu.Lock()
	defer u.mu.Unlock()
	u.over = true
	if !u.body.cut() {
		return true
	}
	_ = u.body.c.SetReadDeadline(time.Time{}) // while a stream is read, there is no deadline
	return false
}
