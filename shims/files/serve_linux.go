package files

import (
	"bufio"
	"errors"
	"fmt"
	"io"

	"github.com/chatd/chatd/chat"
)

// Set are the five tools.
type Set interface {
	ReadFile(a ReadFile, begin Begin) (Answer, error)
	WriteFile(a WriteFile, body io.Reader) (Answer, error)
	EditFile(a EditFile) (Answer, error)
	AppendFile(a WriteFile, body io.Reader) (Answer, error)
	ListDir(a ListDir, begin Begin) (Answer, error)
}

// Serve reads one request from r, executes it, and writes the answer to w; see [Speak] for the
// other end. A failure of the tool is part of the answer. An error means that the answer could not
// be sent.
func (t *Tools) Serve(r io.Reader, w io.Writer) error { return Serve(r, w, t) }

// Serve is [Tools.Serve] with tools of any kind.
func Serve(r io.Reader, w io.Writer, tools Set) error {
	s := &toolCall{r: bufio.NewReaderSize(r, 64<<10), w: bufio.NewWriterSize(w, 64<<10)}
	a, err := s.serve(tools)
	if s.err != nil {
		return fmt.Errorf("cannot write the answer: %w", s.err)
	}
	if err := s.finish(a, err); err != nil {
		return fmt.Errorf("cannot write the answer: %w", err)
	}
	return nil
}

func (s *toolCall) serve(t Set) (Answer, error) {
	line, err := readLine(s.r, maxLine)
	if err != nil {
		return Answer{}, invalid("cannot read the request: %w", noEOF(err))
	}
	var req Request
	if err := decode(line, &req); err != nil {
		return Answer{}, invalid("cannot use the request: %w", err)
	}
	if s.err = s.sendLinks(req.Links); s.err != nil {
		return Answer{}, s.err
	}
	body := &lazyContent{s: s, r: &chunkReader{r: s.r}}
	switch req.Tool {
	case ReadFileTool:
		return call(req, func(a ReadFile) (Answer, error) { return t.ReadFile(a, s.begin) })
	case WriteFileTool:
		return call(req, func(a WriteFile) (Answer, error) { return t.WriteFile(a, body) })
	case EditFileTool:
		return call(req, func(a EditFile) (Answer, error) { return t.EditFile(a) })
	case AppendFileTool:
		return call(req, func(a WriteFile) (Answer, error) { return t.AppendFile(a, body) })
	case ListDirTool:
		return call(req, func(a ListDir) (Answer, error) { return t.ListDir(a, s.begin) })
	case ResolveTool:
		return call(req, func(Resolve) (Answer, error) { return Answer{}, nil })
	}
	return Answer{}, invalid("cannot use tool %s: want read_file, write_file, edit_file, append_file or list_dir", chat.Quote(string(req.Tool)))
}

func call[T any](req Request, do func(T) (Answer, error)) (Answer, error) {
	var a T
	if err := decode(req.Parameters, &a); err != nil {
		return Answer{}, invalid("cannot use the parameters of %s: %w", req.Tool, err)
	}
	return do(a)
}

// toolCall is one request and its answer.
type toolCall struct {
	r     *bufio.Reader
	w     *bufio.Writer
	begun bool
	err   error // of the first write that failed
}

// wait sends the other end what the tool waits for.
func (s *toolCall) wait(what message) error {
	return errors.Join(writeLine(s.w, what), s.w.Flush())
}

// lazyContent is content that is requested at the first Read.
type lazyContent struct {
	s     *toolCall
	r     io.Reader
	asked bool
}

func (w *lazyContent) Read(p []byte) (int, error) {
	if !w.asked {
		w.asked = true
		if err := w.s.wait(message{Send: true}); err != nil {
			w.s.err = err
			return 0, err
		}
	}
	return w.r.Read(p)
}

// begin writes the first answer, after which content follows.
func (s *toolCall) begin(a Answer) io.Writer {
	s.begun = true
	a.Content = true
	s.err = writeLine(s.w, a)
	return s
}

func (s *toolCall) Write(p []byte) (int, error) {
	if s.err != nil {
		return 0, s.err
	}
	var n int
	n, s.err = chunkWriter{s.w}.Write(p)
	return n, s.err
}

// finish ends the content, if it has begun, and writes the answer.
func (s *toolCall) finish(a Answer, err error) error {
	if s.begun {
		if err := (chunkWriter{s.w}).end(); err != nil {
			return err
		}
	}
	a.Failure = failureOf(err)
	if err := writeLine(s.w, a); err != nil {
		return err
	}
	return s.w.Flush()
}
