package files

import (
	"bufio"
	"fmt"
	"io"

	"github.com/chatd/chatd/chat"
)

// Serve does one request that it reads from r, and writes the answer to w; see
// [Call] for the other end. A failure of the tool is part of the answer. An error
// means that the answer did not get through.
func (t *Tools) Serve(r io.Reader, w io.Writer) error {
	in := bufio.NewReaderSize(r, 64<<10)
	s := &served{w: bufio.NewWriterSize(w, 64<<10)}
	a, err := t.serve1(in, s)
	if s.err != nil {
		return fmt.Errorf("cannot write the answer: %w", s.err)
	}
	if err := s.finish(a, err); err != nil {
		return fmt.Errorf("cannot write the answer: %w", err)
	}
	return nil
}

func (t *Tools) serve1(in *bufio.Reader, s *served) (Answer, error) {
	line, err := readLine(in)
	if err != nil {
		return Answer{}, invalid("cannot read the request: %w", noEOF(err))
	}
	var req Request
	if err := decode(line, &req); err != nil {
		return Answer{}, invalid("cannot use the request: %w", err)
	}
	body := &chunkReader{r: in}
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

// served is the answering side of one request.
type served struct {
	w     *bufio.Writer
	begun bool
	err   error // of the first write that failed
}

// begin writes the first answer, after which content follows.
func (s *served) begin(a Answer) io.Writer {
	s.begun = true
	a.Content = true
	s.err = writeLine(s.w, a)
	return s
}

func (s *served) Write(p []byte) (int, error) {
	if s.err != nil {
		return 0, s.err
	}
	var n int
	n, s.err = chunkWriter{s.w}.Write(p)
	return n, s.err
}

// finish ends the content, if any was begun, and writes the answer.
func (s *served) finish(a Answer, err error) error {
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
