package archives

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/provision/safefs"
)

// Options are where archives lie, and for how long.
type Options struct {
	// Dir is an absolute directory of root's, which is made if it is missing.
	Dir string
	// Command gets each file of an archive on its standard input, as UID and GID; empty keeps them
	// in Dir. Its first word is an absolute path.
	Command  []string
	UID, GID uint32
	// Expire is for how long archives are kept; zero is for ever.
	Expire time.Duration
	// Key is the key of the manifests' keyed hashes.
	Key []byte
}

// Store is the archives in one directory. Its methods are safe for concurrent use.
type Store struct {
	opt    Options
	root   *os.Root
	mu     sync.Mutex
	drafts map[chat.ArchiveName]bool // being written
	// tried has the archives that could not be read, with which identities.
	tried map[chat.ArchiveName]string
}

const (
	manifestEnd = ".json"
	// partEnd follows the name of a file that is being written.
	partEnd  = ".part"
	noFollow = unix.O_NOFOLLOW
)

// Open opens the directory. No other user may read it or write to it.
func Open(o Options) (*Store, error) {
	if err := safefs.MakeRoot(o.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("cannot keep archives: %w", err)
	}
	root, err := os.OpenRoot(o.Dir)
	if err != nil {
		return nil, fmt.Errorf("cannot keep archives: %w", err)
	}
	return &Store{
		opt: o, root: root, drafts: map[chat.ArchiveName]bool{}, tried: map[chat.ArchiveName]string{},
	}, nil
}

// Close closes the directory.
func (s *Store) Close() error { return s.root.Close() }

// inPlace refuses a directory that is not the one at its path any more: what would be written is
// below a mount, or in what was moved away.
func (s *Store) inPlace() error {
	is, err := s.root.Stat(".")
	there, terr := os.Stat(s.opt.Dir)
	if err = errors.Join(err, terr); err != nil {
		return err
	}
	if !os.SameFile(is, there) {
		return fmt.Errorf("%s is another directory than when chatd opened it: restart chatd: %w",
			s.opt.Dir, chat.ErrConflict)
	}
	return nil
}

// List returns the manifests that match the filter, the oldest first. Errors are those of archives
// that cannot be used; the others are listed. It is nil where the directory cannot be read.
func (s *Store) List(f chat.ArchiveFilter) (all []Manifest, err error) {
	names, err := s.names()
	if err != nil {
		return nil, err
	}
	all = []Manifest{}
	var errs []error
	for _, name := range names {
		if f.Chat != "" && name.ID() != f.Chat {
			continue
		}
		m, err := s.Get(name)
		switch {
		case errors.Is(err, chat.ErrNotFound): // removed meanwhile
		case err != nil:
			errs = append(errs, err)
		case f.Matches(m.Archive):
			all = append(all, m)
		}
	}
	slices.SortFunc(all, func(a, b Manifest) int {
		return cmp.Or(a.ArchivedAt.Compare(b.ArchivedAt), cmp.Compare(a.Name, b.Name))
	})
	return all, errors.Join(errs...)
}

// names are those of the manifests.
func (s *Store) names() (names []chat.ArchiveName, err error) {
	files, err := s.files()
	for _, file := range files {
		if stem, ok := strings.CutSuffix(file.Name(), manifestEnd); ok {
			if name, err := chat.ParseArchiveName(stem); err == nil {
				names = append(names, name)
			}
		}
	}
	return names, err
}

func (s *Store) files() ([]fs.DirEntry, error) {
	files, err := fs.ReadDir(s.root.FS(), ".")
	if err != nil {
		return nil, fmt.Errorf("cannot list the archives: %w", err)
	}
	return files, nil
}

// OpenPart opens a file of an archive.
func (s *Store) OpenPart(m Manifest, p Part) (*os.File, error) {
	f, err := s.root.OpenFile(partName(m.Name, p), os.O_RDONLY|noFollow|unix.O_NONBLOCK, 0)
	switch {
	case errors.Is(err, fs.ErrNotExist) && m.Sent:
		return nil, fmt.Errorf("cannot read archive %s: the operator's command has it: put its "+
			"file %s into %s: %w", m.Name, partName(m.Name, p), s.opt.Dir, chat.ErrNotFound)
	case err != nil:
		return nil, fmt.Errorf("cannot read archive %s: %w", m.Name, err)
	}
	fi, err := f.Stat()
	if err == nil && !(fi.Mode().IsRegular() && fi.Size() == m.Files[p].Size) {
		err = chat.Invalid("it is not a file of %d bytes", m.Files[p].Size)
	}
	if err != nil {
		err = fmt.Errorf("cannot read archive %s: %s: %w", m.Name, partName(m.Name, p), err)
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

func partName(name chat.ArchiveName, p Part) string { return string(name) + "." + string(p) }

// Remove removes an archive, the manifest first.
func (s *Store) Remove(name chat.ArchiveName) error {
	if _, err := s.read(name); errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("cannot find archive %s: %w", name, chat.ErrNotFound)
	}
	err := s.root.Remove(string(name) + manifestEnd)
	if err == nil {
		err = s.sync()
	}
	for _, p := range []Part{Home, Chat} {
		if err == nil {
			err = s.removeFile(partName(name, p))
		}
	}
	if err != nil {
		return fmt.Errorf("cannot remove archive %s: %w", name, err)
	}
	return nil
}

func (s *Store) removeFile(file string) error {
	if err := s.root.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

func (s *Store) sync() error {
	dir, err := s.root.Open(".")
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

// Tidy removes what drafts left that were not finished, and parts whose manifest was removed. Files
// of other names stay.
func (s *Store) Tidy() error { return s.tidy("") }

// tidy is Tidy for one archive, or for all: an operator may just be putting another back.
func (s *Store) tidy(only chat.ArchiveName) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	files, err := s.files()
	for _, f := range files {
		stem, end, _ := strings.Cut(f.Name(), ".")
		name, err := chat.ParseArchiveName(stem)
		if err != nil || s.drafts[name] || !ours(end) || only != "" && only != name {
			continue
		}
		if _, err := s.root.Lstat(stem + manifestEnd); err == nil && !strings.HasSuffix(end, partEnd) {
			continue
		}
		if err := s.removeFile(f.Name()); err != nil {
			return fmt.Errorf("cannot remove the remains of archive %s: %w", name, err)
		}
	}
	return err
}

// ours reports whether a file with that end is one of an archive or draft.
func ours(end string) bool {
	end = strings.TrimSuffix(end, partEnd)
	return end == string(Home) || end == string(Chat) || "."+end == manifestEnd
}
