package archive

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"

	"filippo.io/age"

	"github.com/chatd/chatd/chat"
)

// Seal writes what in has as [Pack] writes a tree: in zstd, and that in age where there are
// recipients. The summary has its bytes and their hash.
func Seal(in io.Reader, out io.Writer, recipients string) (s Summary, err error) {
	stream, err := compress(out, recipients)
	if err != nil {
		return s, err
	}
	s, err = copySummed(stream, in)
	if err = errors.Join(err, stream.Close()); err != nil {
		return s, fmt.Errorf("cannot seal: %w", err)
	}
	return s, nil
}

func copySummed(out io.Writer, in io.Reader) (s Summary, err error) {
	sum := sha256.New()
	s.Bytes, err = io.Copy(io.MultiWriter(out, sum), in)
	s.SHA256 = hex.EncodeToString(sum.Sum(nil))
	return s, err
}

// Open writes what was sealed, at most max bytes.
func Open(in io.Reader, out io.Writer, identities string, max int64) (s Summary, err error) {
	plain, err := expand(in, identities)
	if err != nil {
		return s, err
	}
	defer func() { err = errors.Join(err, plain.Close()) }()
	s, err = copySummed(out, io.LimitReader(plain, max+1))
	switch {
	case err != nil:
		return s, chat.Invalid("cannot open what was sealed: %w", err)
	case s.Bytes > max:
		return s, chat.Invalid("cannot open what was sealed: more than %d bytes", max)
	}
	return s, nil
}

// CheckKey adds a new recipient to recipients and returns its identity. With that a stream can be
// checked where no identity of the others is, and then forgotten.
func CheckKey(recipients string) (all, identity string, err error) {
	key, err := age.GenerateX25519Identity()
	if err != nil {
		return "", "", fmt.Errorf("cannot make a key for the check: %w", err)
	}
	return recipients + "\n" + key.Recipient().String() + "\n", key.String(), nil
}
