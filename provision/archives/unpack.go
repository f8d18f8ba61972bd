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

// Unpacking is an archive that becomes a chat.
type Unpacking struct {
	Do      Do
	Store   *Store
	Archive Manifest
	// Identities are those of age, one a line; empty reads what is in clear.
	Identities string
}

// Home unpacks the home into dir, which is empty, and wants all of it to be what was archived.
func (u Unpacking) Home(ctx context.Context, dir string) error {
	r, err := u.read(ctx, Home, nil, "unpack", dir)
	if err == nil && r.SHA256 != u.Archive.Files[Home].Content {
		err = errDiffers
	}
	return err
}

// Rest returns the rest of the chat, if it is what was archived.
func (u Unpacking) Rest(ctx context.Context) (text []byte, err error) {
	r, err := u.read(ctx, Chat, readInto(&text), "open")
	want := u.Archive.Files[Chat].Content
	if err == nil && (r.SHA256 != want || hashOf(text) != want) {
		err = errDiffers
	}
	return text, err
}

// read does a command of chatd-archive on a part, whose hash must be that of the manifest.
func (u Unpacking) read(
	ctx context.Context, part Part, out func(io.Reader) error, verb string, args ...string,
) (r Result, err error) {
	f, err := u.Store.OpenPart(u.Archive, part)
	if err != nil {
		return r, err
	}
	hashed := hashing(f)
	command, in := from(verb, u.Identities, hashed)
	r, err = u.Do(ctx, "unpacking", Task{Args: append(command, args...), In: in, Out: out})
	if err == nil {
		err = hashed.check(u.Archive, part)
	}
	return r, errors.Join(err, f.Close())
}

// An unarchive that fails has cost a uid, and a bridge asks again with every message. What cannot be
// read is read as the chat, and so can only be known by a try: this file makes the first the last.

// damaged is kept of an archive whose bytes were not those of its manifest.
const damaged = ""

// CheckTried refuses an archive that could not be read before: while it is damaged, and with the
// same identities.
func (u *Unpacking) CheckTried(ctx context.Context) error {
	u.Store.mu.Lock()
	with, tried := u.Store.tried[u.Archive.Name]
	u.Store.mu.Unlock()
	if !tried {
		return nil
	}
	if _, err := u.Store.Verify(ctx, u.Archive.Name); err != nil {
		return err
	}
	if u.Archive.Encrypted && with == u.identity() {
		return chat.Invalid("cannot unarchive %s: it is whole, and the identities of "+
			"archive.identities did not read it before", u.Archive.Name)
	}
	return nil
}

// KeepTried keeps that an archive could not be read, if err says that. After other errors the next
// try may succeed.
func (u *Unpacking) KeepTried(ctx context.Context, err error) {
	if !errors.Is(err, chat.ErrInvalid) {
		return
	}
	with := u.identity()
	if _, err := u.Store.Verify(ctx, u.Archive.Name); err != nil {
		with = damaged
	}
	u.Store.mu.Lock()
	defer u.Store.mu.Unlock()
	u.Store.tried[u.Archive.Name] = with
}

// identity is a digest of the identities that are used.
func (u *Unpacking) identity() string {
	return fmt.Sprintf("%x", sha256.Sum256([]byte(u.Identities)))
}

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
		return chat.Invalid("archive %s is damaged: %s does not have the hash of its manifest",
			m.Name, partName(m.Name, p))
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
