package archives

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"

	"github.com/chatd/chatd/chat"
)

// hashReader is what was read of a part. It is to be compared with that of the manifest.
type hashReader struct {
	in   io.Reader
	hash hash.Hash
	size int64
}

// hashing returns a reader of in that hashes.
func hashing(in io.Reader) *hashReader { return &hashReader{in: in, hash: sha256.New()} }

func (h *hashReader) Read(b []byte) (int, error) {
	n, err := h.in.Read(b)
	_, _ = h.hash.Write(b[:n]) // a hash takes everything
	h.size += int64(n)
	return n, err
}

// sum is the hash in hex digits, as manifests have it.
func (h *hashReader) sum() string { return hex.EncodeToString(h.hash.Sum(nil)) }

// check compares what was read with the manifest.
func (h *hashReader) check(m Manifest, p Part) error {
	if f := m.Files[p]; h.size != f.Size || h.sum() != f.SHA256 {
		return fmt.Errorf("archive %s is damaged: %s does not have the hash of its manifest: %w",
			m.Name, partName(m.Name, p), chat.ErrInvalid)
	}
	return nil
}

// Verify reads all files of an archive and compares their hashes. It ends with ctx.
func (s *Store) Verify(ctx context.Context, name chat.ArchiveName) (chat.ArchiveCheck, error) {
	m, err := s.Get(name)
	if err != nil {
		return chat.ArchiveCheck{}, err
	}
	c := chat.ArchiveCheck{Name: name}
	for _, p := range []Part{Home, Chat} {
		f, err := s.OpenPart(m, p)
		if err != nil {
			return c, err
		}
		h := hashing(f)
		for err == nil && ctx.Err() == nil {
			_, err = io.CopyN(io.Discard, h, lookEvery)
		}
		if errors.Is(err, io.EOF) {
			err = h.check(m, p)
		} else if err == nil {
			err = fmt.Errorf("cannot verify archive %s: %w", name, context.Cause(ctx))
		}
		if c.Size += h.size; err != nil {
			return c, errors.Join(err, f.Close())
		}
		if err := f.Close(); err != nil {
			return c, err
		}
	}
	return c, nil
}
