package files

import (
	"fmt"
	"io"
	"os"
	"path"
	"strings"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/filewire"
	"golang.org/x/sys/unix"
)

// EditFile is edit_file: old_text, which must be there exactly once, becomes new_text.
func (t *Tools) EditFile(a filewire.EditFile) (filewire.Answer, error) {
	return t.do(filewire.EditFileTool, a, func() (out filewire.Answer, err error) {
		err = again(func() (err error) {
			out, err = t.edit1(a)
			return err
		})
		return out, err
	})
}

func (t *Tools) edit1(a filewire.EditFile) (out filewire.Answer, err error) {
	p, err := t.find(filewire.Edit, a.Path)
	if err != nil {
		return out, err
	}
	defer p.close()
	if p.name == "." {
		return out, &notRegular{"directory"}
	}
	// It is opened for writing too, though only read, so that the kernel checks the permission.
	f, st, err := p.openLocked(unix.O_RDWR)
	if err != nil {
		return out, err
	}
	defer f.Close()
	if st.Size > t.opt.MaxBytes {
		return out, tooLarge(t.opt.MaxBytes)
	}
	off, err := theOnly(f, st.Size, a.OldText)
	if err != nil {
		return out, err
	}
	r := replacement{src: f, size: st.Size, off: off, old: []byte(a.OldText), new: []byte(a.NewText)}
	return p.replaceText(f, st, r)
}

// theOnly is where old is in the file, if it is there once.
func theOnly(f *os.File, size int64, old string) (int64, error) {
	off, n, err := search(io.NewSectionReader(f, 0, size), []byte(old))
	switch {
	case err != nil:
	case n == 0:
		err = &filewire.Failure{Kind: "invalid",
			Message: "old_text not found in file. Make sure it matches exactly"}
	case n > 1:
		err = &filewire.Failure{Kind: "invalid", Message: fmt.Sprintf("old_text appears %d times. "+
			"Please provide more context to make it unique", n)}
	}
	return off, err
}

// replaceText writes the edited file beside the target and puts it in place.
func (p *place) replaceText(f *os.File, st unix.Stat_t, r replacement) (out filewire.Answer, err error) {
	diff, omitted, err := p.diff(r)
	if err != nil {
		return out, err
	}
	tmp, err := p.stage()
	if err != nil {
		return out, err
	}
	tmp.locked, tmp.mode = f, st.Mode&0o777
	defer tmp.drop()
	rest := r.off + int64(len(r.old))
	n, err := tmp.fill(io.MultiReader(io.NewSectionReader(f, 0, r.off), strings.NewReader(string(r.new)),
		io.NewSectionReader(f, rest, r.size-rest)), p.t.opt.MaxBytes)
	if err == nil {
		err = p.unchanged(f, st)
	}
	if err == nil {
		err = tmp.replace()
	}
	if err != nil {
		return out, err
	}
	out, err = tmp.answer(n)
	out.Offset, out.Diff, out.DiffOmitted = r.off, diff, omitted
	return out, err
}

// diff shows lines around the edit, where the rules let the caller read them.
func (p *place) diff(r replacement) (diff, omitted string, err error) {
	for _, name := range []string{p.folded, p.real} {
		if p.t.check(filewire.Read, name) != nil {
			return "", "the file may not be read", nil
		}
	}
	name := p.folded
	if home := p.t.roots[0].name; chat.Within(name, home) && home != "/" {
		name = strings.TrimPrefix(name, home+"/")
	}
	return r.diff(path.Clean(name))
}

// unchanged notices a writer that holds no lock.
func (p *place) unchanged(f *os.File, was unix.Stat_t) error {
	var st unix.Stat_t
	if err := p.sameFile(f, &st); err != nil {
		return err
	}
	if st.Size != was.Size || st.Mtim != was.Mtim {
		return fmt.Errorf("it was written to meanwhile: %w", chat.ErrBusy)
	}
	return nil
}
