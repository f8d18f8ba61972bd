package files

import (
	"errors"
	"io"
	"strings"

	"github.com/chatd/chatd/internal/filewire"

	"golang.org/x/sys/unix"
)

// newMode is the mode of a new file.
const newMode = 0o600

// WriteFile is write_file: the whole file is the content, a's or body's.
func (t *Tools) WriteFile(a filewire.WriteFile, body io.Reader) (filewire.Answer, error) {
	return t.do(filewire.WriteFileTool, a, func() (out filewire.Answer, err error) {
		w, err := t.beginWrite(filewire.Write, a.Path)
		if err != nil {
			return out, err
		}
		defer w.end(&err)
		in := newSum(a.Hash)
		n, err := w.fill(io.TeeReader(contentOf(a, body), in), t.opt.MaxBytes)
		if err == nil {
			err = w.replace()
		}
		if err != nil {
			return out, err
		}
		out, err = w.answer(n)
		out.SHA256 = in.String()
		return out, err
	})
}

// contentOf is what a call writes: its argument, or the stream behind it.
func contentOf(a filewire.WriteFile, body io.Reader) io.Reader {
	if a.Content != nil {
		return strings.NewReader(*a.Content)
	}
	return body
}

// beginWrite finds the target, makes its directories and the file beside it. All refusals happen
// here, before any content is read.
func (t *Tools) beginWrite(op filewire.Op, name string) (w *temp, err error) {
	err = again(func() error {
		p, err := t.find(op, name)
		if err != nil {
			return err
		}
		mode, created, err := p.writable()
		if err == nil {
			err = p.makeDirs()
		}
		if err == nil {
			w, err = p.stage()
		}
		if err != nil {
			p.unmake()
			p.close()
			return err
		}
		w.mode, w.created = mode, created
		return nil
	})
	return w, err
}

// end removes the traces of a failed write.
func (t *temp) end(err *error) {
	t.drop()
	if *err != nil {
		t.target().unmake()
	}
	t.target().close()
}

func (t *temp) answer(n int64) (out filewire.Answer, err error) {
	st, err := t.stat()
	if err == nil {
		out = stated(st)
		out.Path, out.Bytes, out.Created = t.target().real, n, t.created
	}
	return out, err
}

// writable opens the existing file so that the kernel checks its write permission: a rename over it
// would check only the directory's. It returns the new file's mode.
func (p *place) writable() (mode uint32, created bool, err error) {
	if p.name == "." {
		return 0, false, &notRegular{"directory"}
	}
	f, st, err := p.open(unix.O_WRONLY)
	switch {
	case errors.Is(err, unix.ENOENT):
		return newMode, true, nil
	case errors.Is(err, unix.ETXTBSY): // a running program may be replaced
		return st.Mode & 0o777, false, nil
	case err != nil:
		return 0, false, err
	}
	return st.Mode & 0o777, false, f.Close()
}
