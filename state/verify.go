package state

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/chatd/chatd/chat"
)

// reading is the verification of a log in one or more files, the oldest first.
type reading struct {
	chain
	lines int
	// gone is the end of the logs before the first file, if any; removed is whether a line records
	// their removal.
	gone    chain
	removed bool
	// found is whether the line that want names was read.
	want  head
	found bool
}

func newReading() *reading { return &reading{chain: chain{hash: noHash}} }

// verdict returns how many lines are valid, and why no more are. The lines before the first can be
// checked only after all files were read.
func (v *reading) verdict(err error) (int, error) {
	if v.gone.seq > 0 && !v.removed {
		missing := chat.Invalid("line 1: its seq is %d, want 1, and no line says that those before were removed", v.gone.seq+1)
		return 0, errors.Join(err, missing)
	}
	return v.lines, err
}

// file verifies the next file.
func (v *reading) file(r io.Reader) error {
	for raw, err := range linesOf(r) {
		if err != nil {
			return err
		}
		if v.lines == 0 {
			v.begin(raw)
		}
		l, err := v.next(raw)
		if err != nil {
			return chat.Invalid("line %d: %w", v.lines+1, err)
		}
		v.lines++
		v.removed = v.removed || v.says(l)
		v.found = v.found || v.seq == v.want.Seq && v.hash == v.want.Hash
	}
	return nil
}

// begin accepts, for now, what the first line states about the line before it.
func (v *reading) begin(raw rawLine) {
	if l, err := parseLine[line](raw); err == nil && l.Seq > 1 {
		v.chain = chain{l.Seq - 1, l.Prev}
		v.gone = v.chain
	}
}

// says reports whether the line records that the logs before the first were removed.
func (v *reading) says(l line) bool {
	if v.gone.seq == 0 || l.Action != "rotate" {
		return false
	}
	for key, last := range l.Detail {
		if strings.HasPrefix(key, removedKey("")) && last == v.gone.String() {
			return true
		}
	}
	return false
}

// AuditFiles are the files of the log in a state directory, the oldest first.
func AuditFiles(dir string) ([]string, error) {
	names, err := archives(dir)
	if err != nil {
		return nil, fmt.Errorf("cannot list the audit logs: %w", err)
	}
	var paths []string
	for _, name := range append(names, auditName) {
		paths = append(paths, filepath.Join(dir, name))
	}
	return paths, nil
}

// path verifies the next file by its name.
func (v *reading) path(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	if err := errors.Join(v.file(f), f.Close()); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

// snapshot opens every file of the log in dir while audit.jsonl is the open log and has exactly the
// written length, and returns its head.
func (a *auditLog) snapshot(dir string) (files []*os.File, h head, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	paths, err := AuditFiles(dir)
	if err != nil {
		return nil, head{}, err
	}
	for _, path := range paths {
		f, err := os.Open(path)
		if err != nil {
			return files, head{}, err
		}
		files = append(files, f)
	}
	if err := checkSame(a.file, paths[len(paths)-1]); err != nil {
		return files, head{}, err
	}
	fi, err := files[len(files)-1].Stat()
	if err != nil {
		return files, head{}, err
	}
	if fi.Size() != a.head.Offset && !a.torn {
		return files, head{}, chat.Invalid("it has %d bytes, %d were written", fi.Size(), a.head.Offset)
	}
	return files, a.head, nil
}
