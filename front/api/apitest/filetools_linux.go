package apitest

import (
	"context"
	"errors"
	"io"
	"os"
	"path"
	"sync"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/shims/files"
)

// Filers are chats that do what a file tool does by themselves, as a [Memory] does.
type Filers interface {
	Get(ctx context.Context, id chat.ID) (chat.Chat, error)
	ReadFile(
		ctx context.Context, id chat.ID, a files.ReadFile, begin files.Begin,
	) (files.Answer, error)
	WriteFile(
		ctx context.Context, id chat.ID, a files.WriteFile, body io.Reader,
	) (files.Answer, error)
	AppendFile(
		ctx context.Context, id chat.ID, a files.WriteFile, body io.Reader,
	) (files.Answer, error)
	EditFile(ctx context.Context, id chat.ID, a files.EditFile) (files.Answer, error)
	ListDir(
		ctx context.Context, id chat.ID, a files.ListDir, begin files.Begin,
	) (files.Answer, error)
}

// FileTools makes broker.FileTools of Filers: each call has a tool that speaks the protocol of
// package files over two pipes.
type FileTools struct {
	Of Filers
	// Check, if set, is the file rules, for the name in a request.
	Check files.Check
}

// FileTool is broker.FileTools.
func (f FileTools) FileTool(ctx context.Context, id chat.ID, u files.Use, talk files.Talk) error {
	args, err := u.Read()
	if err != nil {
		return err
	}
	c, err := f.Of.Get(ctx, id)
	if err != nil {
		return err
	}
	req, err := files.NewRequest(u.Tool, args)
	if err != nil {
		return err
	}
	s := files.LiveTool{Tool: u.Tool, Max: 1 << 40}
	served, err := f.start(&s, set{ctx, c, f.Of, f.check})
	if err != nil {
		return err
	}
	if err = files.Send(s.In, req); err == nil {
		_, err = talk(ctx, s)
	}
	_ = errors.Join(s.In.Close(), s.Out.Close()) // talk closes them too
	<-served
	return err
}

func (f FileTools) check(op files.Op, name string) *files.Denial {
	if f.Check == nil {
		return nil
	}
	return f.Check(op, name)
}

// start starts a tool, and sets its streams. served is closed when it has ended.
func (FileTools) start(s *files.LiveTool, tools files.Set) (served chan struct{}, err error) {
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

// ShareFile is broker.FileTools.
func (f FileTools) ShareFile(ctx context.Context, id chat.ID, s chat.Share, talk files.Talk) error {
	if err := s.Validate(); err != nil {
		return err
	}
	read, err := files.NewUse(files.ReadFileTool, files.ReadFile{Path: s.Path, Stream: true})
	if err != nil {
		return err
	}
	write, err := files.NewUse(files.WriteFileTool, files.WriteFile{Path: s.Target(), Stream: true})
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
	ask files.Check
}

// named asks about the name of a request.
func (s set) named(op files.Op, name string) error {
	if !path.IsAbs(name) {
		name = s.c.Home + "/" + name
	}
	if d := s.ask(op, path.Clean(name)); d != nil {
		return d
	}
	return nil
}

func (s set) ReadFile(a files.ReadFile, begin files.Begin) (files.Answer, error) {
	if err := s.named(files.Read, a.Path); err != nil {
		return files.Answer{}, err
	}
	return s.of.ReadFile(s.ctx, s.c.ID, a, begin)
}

func (s set) WriteFile(a files.WriteFile, body io.Reader) (files.Answer, error) {
	if err := s.named(files.Write, a.Path); err != nil {
		return files.Answer{}, err
	}
	return s.of.WriteFile(s.ctx, s.c.ID, a, body)
}

func (s set) AppendFile(a files.WriteFile, body io.Reader) (files.Answer, error) {
	if err := s.named(files.Write, a.Path); err != nil {
		return files.Answer{}, err
	}
	return s.of.AppendFile(s.ctx, s.c.ID, a, body)
}

func (s set) EditFile(a files.EditFile) (files.Answer, error) {
	if err := s.named(files.Edit, a.Path); err != nil {
		return files.Answer{}, err
	}
	return s.of.EditFile(s.ctx, s.c.ID, a)
}

func (s set) ListDir(a files.ListDir, begin files.Begin) (files.Answer, error) {
	if err := s.named(files.Read, a.Path); err != nil {
		return files.Answer{}, err
	}
	return s.of.ListDir(s.ctx, s.c.ID, a, begin)
}
