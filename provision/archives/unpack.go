package archives

import (
	"context"
	"errors"
	"io"
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
