package apitest

import (
	"context"
	"errors"
	"io"
	"os"
	"path"
	"sync"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/filewire"
	"github.com/chatd/chatd/shims/files"
)

// Filers are chats that do what a file tool does by themselves, as a [Memory] does.
type Filers interface {
	Get(ctx context.Context, id chat.ID) (chat.Chat, error)
	ReadFile(
		ctx context.Context, id chat.ID, a filewire.ReadFile, begin filewire.Begin,
	) (filewire.Answer, error)
	WriteFile(
		ctx context.Context, id chat.ID, a filewire.WriteFile, body io.Reader,
	) (filewire.Answer, error)
	AppendFile(
		ctx context.Context, id chat.ID, a filewire.WriteFile, body io.Reader,
	) (filewire.Answer, error)
	EditFile(ctx context.Context, id chat.ID, a filewire.EditFile) (filewire.Answer, error)
	ListDir(
		ctx context.Context, id chat.ID, a filewire.ListDir, begin filewire.Begin,
	) (filewire.Answer, error)
}

// FileTools makes verbs.FileTools of Filers: each call has a tool that speaks the protocol of
// package files over two pipes.
type FileTools struct {
	Of Filers
	// Check, if set, is the file rules, for the name in a request.
	Check filewire.Check
}

// FileTool is verbs.FileTools.
func (f FileTools) FileTool(ctx context.Context, id chat.ID, u filewire.Use, talk filewire.Talk) error {
	args, err := u.Read()
	if err != nil {
		return err
	}
	c, err := f.Of.Get(ctx, id)
	if err != nil {
		return err
	}
	req, err := filewire.NewRequest(u.Tool, args)
	if err != nil {
		return err
	}
	s := filewire.LiveTool{Tool: u.Tool, Max: 1 << 40}
	served, err := f.start(&s, set{ctx, c, f.Of, f.check})
	if err != nil {
		return err
	}
	if err = filewire.Send(s.In, req); err == nil {
		_, err = talk(ctx, s)
	}
	_ = errors.Join(s.In.Close(), s.Out.Close()) // talk closes them too
	<-served
	return err
}

func (f FileTools) check(op filewire.Op, name string) *filewire.Denial {
	if f.Check == nil {
		return nil
	}
	return f.Check(op, name)
}

// start starts a tool, and sets its streams. served is closed when it has ended.
func (FileTools) start(s *filewire.LiveTool, tools files.Set) (served chan struct{}, err error) {
	inR, inW, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	outR, outW, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(err, inR.Close(), inW.Close())
	}
	s.In, s.Out = inW, outR
	served = make(chan struct{})
	go func() {
		defer close(served)
		// The test may have closed its ends before.
		_ = errors.Join(files.Serve(inR, outW, tools), inR.Close(), outW.Close())
	}()
	return served, nil
}

// ShareFile is verbs.FileTools.
func (f FileTools) ShareFile(ctx context.Context, id chat.ID, s chat.Share, talk filewire.Talk) error {
	if err := s.Validate(); err != nil {
		return err
	}
	read, err := filewire.NewUse(filewire.ReadFileTool, filewire.ReadFile{Path: s.Path, Stream: true})
	if err != nil {
		return err
	}
	write, err := filewire.NewUse(filewire.WriteFileTool, filewire.WriteFile{Path: s.Target(), Stream: true})
	if err != nil {
		return err
	}
	if _, err := f.Of.Get(ctx, s.To); err != nil {
		return err
	}
	var both sync.WaitGroup
	var readErr, writeErr error
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	both.Go(func() {
		if readErr = f.FileTool(ctx, id, read, talk); readErr != nil {
			cancel()
		}
	})
	writeErr = f.FileTool(ctx, s.To, write, talk)
	both.Wait()
	if readErr != nil {
		return readErr
	}
	return writeErr
}

// set are the tools of one chat.
type set struct {
	ctx context.Context
	c   chat.Chat
	of  Filers
	ask filewire.Check
}

// named asks about the name of a request.
func (s set) named(op filewire.Op, name string) error {
	if !path.IsAbs(name) {
		name = s.c.Home + "/" + name
	}
	if d := s.ask(op, path.Clean(name)); d != nil {
		return d
	}
	return nil
}

func (s set) ReadFile(a filewire.ReadFile, begin filewire.Begin) (filewire.Answer, error) {
	if err := s.named(filewire.Read, a.Path); err != nil {
		return filewire.Answer{}, err
	}
	return s.of.ReadFile(s.ctx, s.c.ID, a, begin)
}

func (s set) WriteFile(a filewire.WriteFile, body io.Reader) (filewire.Answer, error) {
	if err := s.named(filewire.Write, a.Path); err != nil {
		return filewire.Answer{}, err
	}
	return s.of.WriteFile(s.ctx, s.c.ID, a, body)
}

func (s set) AppendFile(a filewire.WriteFile, body io.Reader) (filewire.Answer, error) {
	if err := s.named(filewire.Write, a.Path); err != nil {
		return filewire.Answer{}, err
	}
	return s.of.AppendFile(s.ctx, s.c.ID, a, body)
}

func (s set) EditFile(a filewire.EditFile) (filewire.Answer, error) {
	if err := s.named(filewire.Edit, a.Path); err != nil {
		return filewire.Answer{}, err
	}
	return s.of.EditFile(s.ctx, s.c.ID, a)
}

func (s set) ListDir(a filewire.ListDir, begin filewire.Begin) (filewire.Answer, error) {
	if err := s.named(filewire.Read, a.Path); err != nil {
		return filewire.Answer{}, err
	}
	return s.of.ListDir(s.ctx, s.c.ID, a, begin)
}
