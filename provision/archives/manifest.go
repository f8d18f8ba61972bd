package archives

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"time"

	"github.com/chatd/chatd/chat"
)

// format is the version of [Manifest].
const format = 1

// Part is one file of an archive.
type Part string

// The parts of an archive, by the ends of their names.
const (
	Home Part = "home" // chatd-archive pack
	Chat Part = "chat" // chatd-archive seal
)

// File is what a manifest knows of a [Part].
type File struct {
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256"`
	// Content is the hash of what is in it: see [archive.Summary].
	Content string `json:"content_sha256"`
}

// Manifest describes an archive.
type Manifest struct {
	Format int `json:"format"`
	chat.Archive
	// Record is the chat's record as the caller wrote it.
	Record json.RawMessage `json:"record"`
	Files  map[Part]File   `json:"files"`
	// After is a time that was over when it was archived; nil if archived_at says the same. The
	// clock was behind.
	After *time.Time `json:"after,omitempty"`
	// MAC is the HMAC-SHA256 of the JSON of the rest.
	MAC string `json:"mac,omitempty"`
}

// maxManifest bounds the JSON of a manifest, in bytes.
const maxManifest = 1 << 20

// errForeign is the error of a manifest that this install did not write.
var errForeign = chat.Invalid("its keyed hash is wrong: another install key wrote it, or it was changed")

// sign is the manifest's MAC.
func (s *Store) sign(m Manifest) (string, error) {
	m.MAC = ""
	text, err := json.Marshal(m)
	if err != nil {
		return "", fmt.Errorf("cannot write the manifest of archive %s: %w", m.Name, err)
	}
	mac := hmac.New(sha256.New, s.opt.Key)
	_, _ = mac.Write(text) // a hash takes everything
	return hex.EncodeToString(mac.Sum(nil)), nil
}

// Get returns the manifest of an archive, or [chat.ErrNotFound].
func (s *Store) Get(name chat.ArchiveName) (Manifest, error) {
	m, err := s.read(name)
	if errors.Is(err, fs.ErrNotExist) {
		return m, fmt.Errorf("cannot find archive %s: %w", name, chat.ErrNotFound)
	}
	if err != nil {
		return m, fmt.Errorf("cannot use archive %s: %w", name, err)
	}
	return s.expiring(m), nil
}

func (s *Store) read(name chat.ArchiveName) (Manifest, error) {
	return s.readFile(name, string(name)+manifestEnd)
}

func (s *Store) readFile(name chat.ArchiveName, file string) (m Manifest, err error) {
	f, err := s.root.OpenFile(file, os.O_RDONLY|noFollow, 0)
	if err != nil {
		return m, err
	}
	text, err := io.ReadAll(io.LimitReader(f, maxManifest+1))
	if err = errors.Join(err, f.Close()); err != nil {
		return m, err
	}
	if err := chat.Strict(text, &m); err != nil {
		return m, chat.Invalid("its manifest is damaged: %w", err)
	}
	return m, s.believe(name, m)
}

// believe checks that this install wrote the manifest, for the archive of that name.
func (s *Store) believe(name chat.ArchiveName, m Manifest) error {
	if m.Format != format {
		return chat.Invalid("its format is %d, this chatd reads %d", m.Format, format)
	}
	want, err := s.sign(m)
	if err != nil {
		return err
	}
	if !hmac.Equal([]byte(want), []byte(m.MAC)) {
		return errForeign
	}
	if m.Name != name {
		return chat.Invalid("its manifest is that of %s", m.Name)
	}
	return nil
}

// expiring sets when the archive expires.
func (s *Store) expiring(m Manifest) Manifest {
	m.ExpiresAt = nil
	if s.opt.Expire > 0 {
		at := m.ArchivedAt
		if m.After != nil {
			at = *m.After
		}
		at = at.Add(s.opt.Expire)
		m.ExpiresAt = &at
	}
	return m
}
