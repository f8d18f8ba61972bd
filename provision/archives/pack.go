package archives

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/chatd/chatd/chat"
)

// Do does a task in a one-shot session of a chat. doing is packing, checking or unpacking.
type Do func(ctx context.Context, doing string, t Task) (Result, error)

// Packing is an archive of a chat that is being written.
type Packing struct {
	Do    Do
	Draft *Draft
	// Recipients are those of age, one a line; empty is in clear.
	Recipients string
}

// errDiffers is the error of an archive that is not what was archived.
var errDiffers = fmt.Errorf("what was written is not what was read: %w", chat.ErrConflict)

// maxRest bounds what an archive has of a chat besides its home, in bytes.
const maxRest = 16 << 20

// Home packs the home in dir, and checks what was written: it is read again as an unarchive would.
func (p Packing) Home(ctx context.Context, dir string) (Result, error) {
	packed, err := p.Do(ctx, "packing", Task{
		Args: append(p.to("pack"), dir), In: strings.NewReader(p.Recipients),
		Out: func(in io.Reader) error { return p.Draft.write(Home, in) },
	})
	if err != nil {
		return packed, err
	}
	checked, err := p.read(ctx, Home, "check", packed.CheckIdentity, nil)
	if err == nil && (checked.SHA256 != packed.SHA256 || checked.Entries != packed.Entries ||
		checked.Bytes != packed.Bytes) {
		err = errDiffers
	}
	p.Draft.describe(Home, packed.SHA256)
	return packed, err
}

// Rest seals the rest of the chat, and checks what was written.
func (p Packing) Rest(ctx context.Context, text []byte) error {
	if len(text) > maxRest {
		return chat.Invalid("cannot archive the schedules and log: %d bytes, want at most %d",
			len(text), maxRest)
	}
	in := io.Reader(bytes.NewReader(text))
	if p.Recipients != "" {
		in = io.MultiReader(strings.NewReader(p.Recipients+"\x00"), in)
	}
	sealed, err := p.Do(ctx, "packing", Task{
		Args: p.to("seal"), In: in,
		Out: func(in io.Reader) error { return p.Draft.write(Chat, in) },
	})
	if err != nil {
		return err
	}
	var again []byte
	_, err = p.read(ctx, Chat, "open", sealed.CheckIdentity, readInto(&again))
	if err == nil && !bytes.Equal(again, text) {
		err = errDiffers
	}
	p.Draft.describe(Chat, hashOf(text))
	return err
}

func hashOf(text []byte) string {
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

// readInto reads at most one byte more than maxRest.
func readInto(text *[]byte) func(io.Reader) error {
	return func(in io.Reader) (err error) {
		*text, err = io.ReadAll(io.LimitReader(in, maxRest+1))
		return err
	}
}

// to is a command that writes to the recipients.
func (p Packing) to(verb string) []string {
	if p.Recipients == "" {
		return []string{verb}
	}
	return []string{verb, "--recipients", "-", "--check-key"}
}

// read reads a part that was written, by the identity of its check.
func (p Packing) read(
	ctx context.Context, part Part, verb, identity string, out func(io.Reader) error,
) (r Result, err error) {
	f, err := p.Draft.read(part)
	if err != nil {
		return r, err
	}
	args, in := from(verb, identity, f)
	r, err = p.Do(ctx, "checking", Task{Args: args, In: in, Out: out})
	return r, errors.Join(err, f.Close())
}

// from is a command that reads in, by the identities.
func from(verb, identities string, in io.Reader) ([]string, io.Reader) {
	if identities == "" {
		return []string{verb}, in
	}
	return []string{verb, "--identities", "-"},
		io.MultiReader(strings.NewReader(identities+"\x00"), in)
}
