package archives

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/chat"
)

// Draft is an archive that is being written. Its owner calls Commit or Discard.
type Draft struct {
	store *Store
	name  chat.ArchiveName
	files map[Part]File
	after time.Time // see NotBefore
}

// FreeName returns the name of an archive of the chat that is begun at the time, or of one a little
// later where there are archives of that name.
func (s *Store) FreeName(id chat.ID, at time.Time) chat.ArchiveName {
	for {
		name := chat.NewArchiveName(id, at)
		if _, err := s.root.Lstat(string(name) + manifestEnd); err != nil {
			return name // it is free, or Begin says what is wrong
		}
		at = at.Add(time.Second)
	}
}

// Begin begins an archive. There is none of that name, or the error is [chat.ErrExists].
func (s *Store) Begin(name chat.ArchiveName) (*Draft, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.inPlace(); err != nil {
		return nil, fmt.Errorf("cannot begin archive %s: %w", name, err)
	}
	_, err := s.root.Lstat(string(name) + manifestEnd)
	if err == nil || s.drafts[name] {
		return nil, fmt.Errorf("cannot begin archive %s: there is one: %w", name, chat.ErrExists)
	}
	s.drafts[name] = true
	return &Draft{store: s, name: name, files: map[Part]File{}}, nil
}

// write copies in to the part's file until its end, and makes it durable. It leaves a part of the
// file system free.
func (d *Draft) write(p Part, in io.Reader) (err error) {
	file := partName(d.name, p) + partEnd
	f, err := d.store.create(file)
	if err != nil {
		return fmt.Errorf("cannot write archive %s: %w", d.name, err)
	}
	hashed := hashing(in)
	_, err = io.CopyBuffer(&boundedDraft{file: f}, hashed, make([]byte, 256<<10))
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("cannot write archive %s: %w", d.name, err)
	}
	d.files[p] = File{Size: hashed.size, SHA256: hashed.sum()}
	return nil
}

func (s *Store) create(file string) (*os.File, error) {
	return s.root.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL|noFollow, 0o600)
}

// boundedDraft writes to a file, and leaves a part of its file system free.
type boundedDraft struct {
	file       *os.File
	size, next int64
}

// lookEvery is after how many bytes a draft looks how much is free.
const lookEvery = 16 << 20

func (r *boundedDraft) Write(b []byte) (int, error) {
	if r.size >= r.next {
		if err := r.look(); err != nil {
			return 0, err
		}
		r.next = r.size + lookEvery
	}
	n, err := r.file.Write(b)
	r.size += int64(n)
	return n, err
}

// look refuses to fill the last hundredth of the file system.
func (r *boundedDraft) look() error {
	var st unix.Statfs_t
	if err := unix.Fstatfs(int(r.file.Fd()), &st); err != nil {
		return fmt.Errorf("cannot look how much is free: %w", err)
	}
	if free, least := st.Bavail*uint64(st.Bsize), st.Blocks/100*uint64(st.Bsize); free <
		least+lookEvery {
		return fmt.Errorf("its file system has %d bytes free, want %d: %w", free, least+lookEvery,
			chat.ErrBusy)
	}
	return nil
}

// read opens a part that was written, for a check of it.
func (d *Draft) read(p Part) (*os.File, error) {
	f, err := d.store.root.OpenFile(partName(d.name, p)+partEnd, os.O_RDONLY|noFollow, 0)
	if err != nil {
		return nil, fmt.Errorf("cannot read archive %s: %w", d.name, err)
	}
	// The check shall read the disk, and not the page cache (posix_fadvise(2)).
	_ = unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED)
	return f, nil
}

// describe sets the hash of what is in a part.
func (d *Draft) describe(p Part, content string) {
	f := d.files[p]
	f.Content = content
	d.files[p] = f
}

// NotBefore says that the archive is made after t, also where the clock says otherwise: it expires
// by the later one.
func (d *Draft) NotBefore(t time.Time) { d.after = t.UTC().Round(0) }

// Commit makes the archive, durable on return: the operator's command has taken all files, or they
// are in the directory. It returns the archive with its size.
func (d *Draft) Commit(
	ctx context.Context, a chat.Archive, record json.RawMessage,
) (chat.Archive, error) {
	s := d.store
	a.Name, a.Size, a.Sent, a.ExpiresAt = d.name, 0, len(s.opt.Command) > 0, nil
	for _, f := range d.files {
		a.Size += f.Size
	}
	m := Manifest{Format: format, Archive: a, Record: record, Files: d.files}
	if d.after.After(a.ArchivedAt) {
		m.After = &d.after
	}
	err := d.manifest(&m)
	if err == nil {
		err = d.rename(ctx)
	}
	if err != nil {
		return a, fmt.Errorf("cannot keep archive %s: %w", d.name, err)
	}
	d.done()
	return s.expiring(m).Archive, nil
}

// manifest signs and writes the manifest, and reads it again: it is to be believed later.
func (d *Draft) manifest(m *Manifest) (err error) {
	if m.MAC, err = d.store.sign(*m); err != nil {
		return err
	}
	text, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return err
	}
	file := string(d.name) + manifestEnd + partEnd
	f, err := d.store.create(file)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		_, err = d.store.readFile(d.name, file)
	}
	return err
}

// rename gives the files their names, the manifest's last.
func (d *Draft) rename(ctx context.Context) error {
	s := d.store
	if len(s.opt.Command) > 0 {
		if err := s.send(ctx, d); err != nil {
			return err
		}
	}
	for p := range d.files {
		file := partName(d.name, p)
		if len(s.opt.Command) > 0 {
			if err := s.removeFile(file + partEnd); err != nil {
				return err
			}
		} else if err := s.root.Rename(file+partEnd, file); err != nil {
			return err
		}
	}
	if err := s.sync(); err != nil {
		return err
	}
	file := string(d.name) + manifestEnd
	if err := s.root.Rename(file+partEnd, file); err != nil {
		return err
	}
	return s.sync()
}

// done ends the draft, and reports whether it was one.
func (d *Draft) done() (was bool) {
	d.store.mu.Lock()
	defer d.store.mu.Unlock()
	was = d.store.drafts[d.name]
	delete(d.store.drafts, d.name)
	return was
}

// Discard removes what was written. After a Commit it does nothing.
func (d *Draft) Discard() error {
	if !d.done() {
		return nil
	}
	return d.store.tidy(d.name)
}
