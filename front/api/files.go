package api

import (
	"bytes"
	"context"
	"io"
	"net/http"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/client"
	"github.com/chatd/chatd/internal/filewire"
)

type fileOutput struct {
	Status int
	Body   client.FileAnswer
}

// readFile answers a page; files/content answers the whole file as bytes.
func (s *Server) readFile(ctx context.Context, in *chatBody[filewire.ReadFile]) (*fileOutput, error) {
	if in.Body.Stream {
		return nil, noStream("GET")
	}
	var b bytes.Buffer
	return fileTool(in, func(id chat.ID) (filewire.Answer, error) {
		return s.opt.Chats.ReadFile(ctx, id, in.Body, func(filewire.Answer) io.Writer { return &b })
	}, &b)
}

func (s *Server) listDir(ctx context.Context, in *chatBody[filewire.ListDir]) (*fileOutput, error) {
	var b bytes.Buffer
	return fileTool(in, func(id chat.ID) (filewire.Answer, error) {
		return s.opt.Chats.ListDir(ctx, id, in.Body, func(filewire.Answer) io.Writer { return &b })
	}, &b)
}

func (s *Server) writeFile(ctx context.Context, in *chatBody[filewire.WriteFile]) (*fileOutput, error) {
	if in.Body.Stream {
		return nil, noStream("PUT")
	}
	return fileTool(in, func(id chat.ID) (filewire.Answer, error) {
		return s.opt.Chats.WriteFile(ctx, id, in.Body, nil)
	}, nil)
}

func (s *Server) appendFile(ctx context.Context, in *chatBody[filewire.WriteFile]) (*fileOutput, error) {
	if in.Body.Stream {
		return nil, noStream("PUT")
	}
	return fileTool(in, func(id chat.ID) (filewire.Answer, error) {
		return s.opt.Chats.AppendFile(ctx, id, in.Body, nil)
	}, nil)
}

func (s *Server) editFile(ctx context.Context, in *chatBody[filewire.EditFile]) (*fileOutput, error) {
	return fileTool(in, func(id chat.ID) (filewire.Answer, error) {
		return s.opt.Chats.EditFile(ctx, id, in.Body)
	}, nil)
}

func noStream(method string) *client.Problem {
	return invalid(http.StatusBadRequest, "stream", "cannot stream in JSON: want %s of files/content", method)
}

// fileTool calls a tool whose arguments and answer are JSON.
func fileTool[T any](in *chatBody[T], do func(chat.ID) (filewire.Answer, error), content *bytes.Buffer) (*fileOutput, error) {
	id, err := in.id()
	if err != nil {
		return nil, err
	}
	a, err := do(id)
	if err != nil {
		return nil, err
	}
	var read []byte
	if content != nil {
		read = append([]byte{}, content.Bytes()...)
	}
	return &fileOutput{Status: statusOf(a), Body: client.NewFileAnswer(a, read)}, nil
}

func statusOf(a filewire.Answer) int {
	if a.Created {
		return http.StatusCreated
	}
	return http.StatusOK
}
