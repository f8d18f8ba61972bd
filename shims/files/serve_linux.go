package files

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"path"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/filerules"
	"github.com/chatd/chatd/internal/filewire"
)

// Set are the five tools.
type Set interface {
	ReadFile(a filewire.ReadFile, begin filewire.Begin) (filewire.Answer, error)
	WriteFile(a filewire.WriteFile, body io.Reader) (filewire.Answer, error)
	EditFile(a filewire.EditFile) (filewire.Answer, error)
	AppendFile(a filewire.WriteFile, body io.Reader) (filewire.Answer, error)
	ListDir(a filewire.ListDir, begin filewire.Begin) (filewire.Answer, error)
}

// Serve reads one request from r, executes it, and writes the answer to w; see [filewire.Speak] for the
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

func (s *toolCall) serve(t Set) (filewire.Answer, error) {
	line, err := filewire.ReadLine(s.r, filewire.MaxLine)
	if err != nil {
		return filewire.Answer{}, filewire.Invalid("cannot read the request: %w", filewire.NoEOF(err))
	}
	var req filewire.Request
	if err := filewire.Decode(line, &req); err != nil {
		return filewire.Answer{}, filewire.Invalid("cannot use the request: %w", err)
	}
	if s.err = s.sendLinks(req.Links); s.err != nil {
		return filewire.Answer{}, s.err
	}
	body := &lazyContent{s: s, r: filewire.NewChunkReader(s.r)}
	switch req.Tool {
	case filewire.ReadFileTool:
		return call(req, func(a filewire.ReadFile) (filewire.Answer, error) { return t.ReadFile(a, s.begin) })
	case filewire.WriteFileTool:
		return call(req, func(a filewire.WriteFile) (filewire.Answer, error) { return t.WriteFile(a, body) })
	case filewire.EditFileTool:
		return call(req, func(a filewire.EditFile) (filewire.Answer, error) { return t.EditFile(a) })
	case filewire.AppendFileTool:
		return call(req, func(a filewire.WriteFile) (filewire.Answer, error) { return t.AppendFile(a, body) })
	case filewire.ListDirTool:
		return call(req, func(a filewire.ListDir) (filewire.Answer, error) { return t.ListDir(a, s.begin) })
	case filewire.ResolveTool:
		return call(req, func(filewire.Resolve) (filewire.Answer, error) { return filewire.Answer{}, nil })
	}
	return filewire.Answer{}, filewire.Invalid("cannot use tool %s: want read_file, write_file, edit_file, append_file or list_dir", chat.Quote(string(req.Tool)))
}

func call[T any](req filewire.Request, do func(T) (filewire.Answer, error)) (filewire.Answer, error) {
	var a T
	if err := filewire.Decode(req.Parameters, &a); err != nil {
		return filewire.Answer{}, filewire.Invalid("cannot use the parameters of %s: %w", req.Tool, err)
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
func (s *toolCall) wait(what filewire.Message) error {
	return errors.Join(filewire.WriteLine(s.w, what), s.w.Flush())
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
		if err := w.s.wait(filewire.Message{Send: true}); err != nil {
			w.s.err = err
			return 0, err
		}
	}
	return w.r.Read(p)
}

// begin writes the first answer, after which content follows.
func (s *toolCall) begin(a filewire.Answer) io.Writer {
	s.begun = true
	a.Content = true
	s.err = filewire.WriteLine(s.w, a)
	return s
}

func (s *toolCall) Write(p []byte) (int, error) {
	if s.err != nil {
		return 0, s.err
	}
	var n int
	n, s.err = filewire.NewChunkWriter(s.w).Write(p)
	return n, s.err
}

// finish ends the content, if it has begun, and writes the answer.
func (s *toolCall) finish(a filewire.Answer, err error) error {
	if s.begun {
		if err := filewire.NewChunkWriter(s.w).End(); err != nil {
			return err
		}
	}
	a.Failure = filewire.FailureOf(err)
	if err := filewire.WriteLine(s.w, a); err != nil {
		return err
	}
	return s.w.Flush()
}

// sendLinks reports the names that links lead elsewhere, in the chat's view and with the chat's
// rights, and those that it may not use there. It reads links and opens nothing.
func (s *toolCall) sendLinks(names []string) error {
	var out filewire.Message
	size := 0
	for i, name := range names {
		to := filerules.Physical(name)
		no := refused(to)
		if to == path.Clean(name) && no == "" {
			continue
		}
		out.Links = append(out.Links, filewire.Link{N: i, To: to, No: no})
		if size += len(to); size > filewire.MaxSaid/16 { // in JSON a byte may be six
			if err := filewire.WriteLine(s.w, out); err != nil {
				return err
			}
			out.Links, size = nil, 0
		}
	}
	if len(out.Links) == 0 {
		return nil
	}
	return filewire.WriteLine(s.w, out)
}

// refused is what [Link.No] says of a name. Of a name that is not there it says whether the chat may
// make it in its directory.
func refused(name string) (no string) {
	may := func(name string, mode uint32) error {
		return unix.Faccessat(unix.AT_FDCWD, name, mode, unix.AT_EACCESS)
	}
	gone := may(name, unix.F_OK)
	switch {
	case errors.Is(gone, unix.ENOENT) && may(path.Dir(name), unix.W_OK|unix.X_OK) != nil:
		return "w"
	case errors.Is(gone, unix.ENOENT):
		return ""
	case may(name, unix.R_OK) != nil:
		no = "r"
	}
	if may(name, unix.W_OK) != nil {
		no += "w"
	}
	return no
}
