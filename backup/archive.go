package backup

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/chatd/chatd/chat"
)

// Form is the version of the archive's form; the state in it has one of its own.
const Form = 1

// Bounds of an archive.
const (
	maxManifest = 1 << 20  // bytes
	maxFiles    = 10_000   // of the manifest
	maxFile     = 1 << 40  // bytes of one file
	maxConfig   = 16 << 20 // bytes of one file of the config
	manifest    = "manifest.json"
	configDir   = "config/"
)

// Manifest says what a backup holds. It is the first entry of the archive.
type Manifest struct {
	// Form is the version of this form: 1.
	Form int `json:"chatd_backup"`
	// Chatd is the version of the program that made it.
	Chatd string    `json:"chatd"`
	At    time.Time `json:"at"`
	// State is the version of the database; see [state.Version].
	State int `json:"state_version"`
	Chats int `json:"chats"`
	// Given counts the uids that were given until then.
	Given int `json:"uids_given"`
	// AuditSeq and AuditHash are of the last line of the audit log.
	AuditSeq  uint64 `json:"audit_seq"`
	AuditHash string `json:"audit_sha256"`
	// Config names the files of the config, as they are called on the host, by their names here.
	Config map[string]string `json:"config"`
	Files  []Entry           `json:"files"`
}

// Entry is one file of an archive.
type Entry struct {
	Name   string `json:"name"`
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256"`
}

// source is a file to be written: the first Size bytes of From.
type source struct {
	Entry
	From io.ReaderAt
}

func (s source) reader() io.Reader { return io.NewSectionReader(s.From, 0, s.Size) }

// write writes the archive. It hashes each file before and again while it is written: a file that
// changed in between is an error.
func write(out io.Writer, m Manifest, files []source) error {
	for i := range files {
		sum := sha256.New()
		if n, err := io.Copy(sum, files[i].reader()); err != nil || n != files[i].Size {
			return fmt.Errorf("cannot read %s: %d of %d bytes: %w", files[i].Name, n,
				files[i].Size, errors.Join(err, io.ErrUnexpectedEOF))
		}
		files[i].SHA256 = hex.EncodeToString(sum.Sum(nil))
		m.Files = append(m.Files, files[i].Entry)
	}
	text, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return fmt.Errorf("cannot write the manifest: %w", err)
	}
	to := tar.NewWriter(out)
	head := source{Entry{Name: manifest, Size: int64(len(text))}, bytes.NewReader(text)}
	for _, f := range append([]source{head}, files...) {
		if err := writeEntry(to, f, m.At); err != nil {
			return fmt.Errorf("cannot write the backup: %s: %w", f.Name, err)
		}
	}
	if err := to.Close(); err != nil {
		return fmt.Errorf("cannot write the backup: %w", err)
	}
	return nil
}

func writeEntry(to *tar.Writer, f source, at time.Time) error {
	h := &tar.Header{
		Typeflag: tar.TypeReg,
		Name:     f.Name,
		Size:     f.Size,
		Mode:     0o600,
		ModTime:  at.Truncate(time.Second),
	}
	if err := to.WriteHeader(h); err != nil {
		return err
	}
	sum := sha256.New()
	if _, err := io.Copy(io.MultiWriter(to, sum), f.reader()); err != nil {
		return err
	}
	if got := hex.EncodeToString(sum.Sum(nil)); f.SHA256 != "" && got != f.SHA256 {
		return fmt.Errorf("it changed while it was read: %w", chat.ErrConflict)
	}
	return nil
}

// reader reads an archive strictly: the manifest, and then what it lists.
type reader struct {
	in  *tar.Reader
	raw io.Reader
	Manifest
}

// stateName is a file of a state.
var stateName = regexp.MustCompile(`^(chatd\.db|install\.key|audit(-[0-9]{20})?\.jsonl)$`)

// configName is a file of the config: one folder, and no name that hides.
var configName = regexp.MustCompile(`^config/[A-Za-z0-9_][A-Za-z0-9._-]{0,200}$`)

// open reads the manifest.
func open(in io.Reader) (*reader, error) {
	r := &reader{in: tar.NewReader(in), raw: in}
	h, err := r.next(manifest, -1)
	if err != nil {
		return nil, fmt.Errorf("cannot read the backup: %w", err)
	}
	if h.Size > maxManifest {
		return nil, fmt.Errorf("cannot read the backup: its manifest has %d bytes, want at most %d: %w",
			h.Size, maxManifest, chat.ErrInvalid)
	}
	text, err := io.ReadAll(r.in)
	if err == nil {
		err = json.Unmarshal(text, &r.Manifest)
	}
	if err == nil {
		err = r.check()
	}
	if err != nil {
		return nil, fmt.Errorf("cannot read the backup: its manifest: %w: %w", err, chat.ErrInvalid)
	}
	return r, nil
}

func (m *Manifest) check() error {
	if m.Form != Form {
		return fmt.Errorf("it has form %d, this chatd reads form %d", m.Form, Form)
	}
	if len(m.Files) > maxFiles {
		return fmt.Errorf("it lists %d files, want at most %d", len(m.Files), maxFiles)
	}
	seen := map[string]bool{}
	for _, f := range m.Files {
		sum, err := hex.DecodeString(f.SHA256)
		switch {
		case seen[f.Name]:
			return fmt.Errorf("it lists %s twice", chat.Quote(f.Name))
		case !stateName.MatchString(f.Name) && !configName.MatchString(f.Name):
			return fmt.Errorf("it lists %s, which is no file of a state or config",
				chat.Quote(f.Name))
		case f.Size < 0 || f.Size > maxFile || strings.HasPrefix(f.Name, configDir) && f.Size > maxConfig:
			return fmt.Errorf("it lists %s with %d bytes", f.Name, f.Size)
		case err != nil || len(sum) != sha256.Size:
			return fmt.Errorf("it has no SHA-256 of %s", f.Name)
		}
		seen[f.Name] = true
	}
	for _, name := range []string{"chatd.db", "install.key", "audit.jsonl"} {
		if !seen[name] {
			return fmt.Errorf("it lists no %s", name)
		}
	}
	return nil
}

// size is that of all files.
func (m *Manifest) size() (sum uint64) {
	for _, f := range m.Files {
		sum += uint64(f.Size)
	}
	return sum
}

// next wants one regular file of that name, and of that size unless it is negative.
func (r *reader) next(name string, size int64) (*tar.Header, error) {
	h, err := r.in.Next()
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return nil, fmt.Errorf("it ends before %s: %w", name, chat.ErrInvalid)
	case errors.Is(err, tar.ErrHeader), errors.Is(err, tar.ErrFieldTooLong):
		return nil, fmt.Errorf("it is no archive where %s should be: %w: %w", name, err,
			chat.ErrInvalid)
	case err != nil:
		return nil, err
	case h.Name != name:
		return nil, fmt.Errorf("it has %s where %s should be: %w", chat.Quote(h.Name), name,
			chat.ErrInvalid)
	case h.Typeflag != tar.TypeReg:
		return nil, fmt.Errorf("%s is no regular file in it: %w", name, chat.ErrInvalid)
	case size >= 0 && h.Size != size:
		return nil, fmt.Errorf("%s has %d bytes, its manifest says %d: %w", name, h.Size, size,
			chat.ErrInvalid)
	}
	return h, nil
}

// unpack writes the files of the state into dir, checks those of the config, and wants the end of
// the archive behind them.
func (r *reader) unpack(dir string) error {
	for _, f := range r.Files {
		err := r.unpackOne(dir, f)
		if err != nil {
			return fmt.Errorf("cannot read the backup: %w", err)
		}
	}
	if h, err := r.in.Next(); err == nil {
		return fmt.Errorf("cannot read the backup: it has %s, which its manifest does not list: %w",
			chat.Quote(h.Name), chat.ErrInvalid)
	} else if !errors.Is(err, io.EOF) {
		return fmt.Errorf("cannot read the backup: its end: %w: %w", err, chat.ErrInvalid)
	}
	return r.end()
}

// end wants nothing but zeros behind the archive, with which tar(1) fills a block.
func (r *reader) end() error {
	b := make([]byte, 32<<10)
	for {
		n, err := r.raw.Read(b)
		if len(bytes.Trim(b[:n], "\x00")) > 0 {
			return fmt.Errorf("cannot read the backup: it goes on behind its end: %w",
				chat.ErrInvalid)
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("cannot read the backup: %w", err)
		}
	}
}

func (r *reader) unpackOne(dir string, f Entry) error {
	if _, err := r.next(f.Name, f.Size); err != nil {
		return err
	}
	to := io.WriteCloser(nothing{})
	if stateName.MatchString(f.Name) {
		file, err := os.OpenFile(filepath.Join(dir, f.Name), os.O_WRONLY|os.O_CREATE|os.O_EXCL,
			0o600)
		if err != nil {
			return err
		}
		to = file
	}
	sum := sha256.New()
	n, err := io.Copy(io.MultiWriter(to, sum), r.in)
	err = errors.Join(err, to.Close())
	switch {
	case errors.Is(err, io.ErrUnexpectedEOF):
		return fmt.Errorf("it ends in %s, after %d of %d bytes: %w", f.Name, n, f.Size,
			chat.ErrInvalid)
	case err != nil:
		return err
	case hex.EncodeToString(sum.Sum(nil)) != f.SHA256:
		return fmt.Errorf("the SHA-256 of %s is not that of its manifest: the file is damaged: %w",
			f.Name, chat.ErrInvalid)
	}
	return nil
}

// nothing takes what is only hashed.
type nothing struct{}

func (nothing) Write(b []byte) (int, error) { return len(b), nil }
func (nothing) Close() error                { return nil }
