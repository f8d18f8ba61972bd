package api

import (
	"bytes"
	"context"
	"io"
	"net/http"

	"github.com/chatd/chatd/client"
	"github.com/chatd/chatd/internal/filewire"
)

type fileOutput = withStatus[client.FileAnswer]

// readFile answers a page; files/content answers the whole file as bytes.
func (s *Server) readFile(ctx context.Context, in *chatBody[filewire.ReadFile]) (*fileOutput, error) {
	if in.Body.Stream {
		return nil, noStream("GET")
	}
	b := bytes.NewBuffer([]byte{})
	a, err := s.opt.Chats.ReadFile(ctx, in.ID, in.Body, func(filewire.Answer) io.Writer { return b })
	return fileAnswer(a, b.Bytes(), err)
}

func (s *Server) listDir(ctx context.Context, in *chatBody[filewire.ListDir]) (*fileOutput, error) {
	b := bytes.NewBuffer([]byte{})
	a, err := s.opt.Chats.ListDir(ctx, in.ID, in.Body, func(filewire.Answer) io.Writer { return b })
	return fileAnswer(a, b.Bytes(), err)
}

func (s *Server) writeFile(ctx context.Context, in *chatBody[filewire.WriteFile]) (*fileOutput, error) {
	if in.Body.Stream {
		return nil, noStream("PUT")
	}
	a, err := s.opt.Chats.WriteFile(ctx, in.ID, in.Body, nil)
	return fileAnswer(a, nil, err)
}

func (s *Server) appendFile(ctx context.Context, in *chatBody[filewire.WriteFile]) (*fileOutput, error) {
	if in.Body.Stream {
		return nil, noStream("PUT")
	}
	a, err := s.opt.Chats.AppendFile(ctx, in.ID, in.Body, nil)
	return fileAnswer(a, nil, err)
}

func (s *Server) editFile(ctx context.Context, in *chatBody[filewire.EditFile]) (*fileOutput, error) {
	a, err := s.opt.Chats.EditFile(ctx, in.ID, in.Body)
	return fileAnswer(a, nil, err)
}

func noStream(method string) *client.Problem {
	return invalid(http.StatusBadRequest, "stream", "cannot stream in JSON: want %s of files/content", method)
}

// fileAnswer is a tool's answer in JSON, with the content that it read; nil means none.
func fileAnswer(a filewire.Answer, content []byte, err error) (*fileOutput, error) {
	return &fileOutput{madeStatus(a.Created), client.NewFileAnswer(a, content)}, err
}

// madeStatus tells what is new from what was there.
func madeStatus(created bool) int {
	if created {
		return http.StatusCreated
	}
	return http.StatusOK
}
