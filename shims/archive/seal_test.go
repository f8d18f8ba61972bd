package archive

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"filippo.io/age"

	"github.com/chatd/chatd/chat"
)

// TestSeal: what is sealed is opened again, by an identity of a recipient or that of the check, and
// by no other; it is bounded, and a cut or flipped one is an error.
func TestSeal(t *testing.T) {
	mine, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	for name, recipients := range map[string]string{"clear": "", "age": mine.Recipient().String()} {
		t.Run(name, func(t *testing.T) { sealed(t, recipients, mine.String()) })
	}
	if _, _, err := CheckKey(""); err != nil {
		t.Error(err)
	}
}

func sealed(t *testing.T, recipients, identity string) {
	const text = "what a chat said"
	keys := []string{""}
	if recipients != "" {
		all, check, err := CheckKey(recipients)
		if err != nil || check == "" {
			t.Fatal(check, err)
		}
		recipients, keys = all, []string{identity, check}
	}
	var stream bytes.Buffer
	s, err := Seal(strings.NewReader(text), &stream, recipients)
	if err != nil || s.Bytes != int64(len(text)) {
		t.Fatal(s, err)
	}
	for _, key := range keys {
		var out bytes.Buffer
		got, err := Open(bytes.NewReader(stream.Bytes()), &out, key, 100)
		if err != nil || out.String() != text || got.SHA256 != s.SHA256 {
			t.Errorf("opened %q, %+v, %v", out.String(), got, err)
		}
		if _, err := Open(bytes.NewReader(stream.Bytes()), &out, key, int64(len(text)-1)); !errors.Is(err, chat.ErrInvalid) {
			t.Errorf("over its bound: %v", err)
		}
		if _, err := Open(bytes.NewReader(stream.Bytes()[:stream.Len()-1]), &out, key, 100); err == nil {
			t.Error("a stream that is cut off is opened")
		}
	}
	if recipients == "" {
		return
	}
	other, _ := age.GenerateX25519Identity()
	for _, key := range []string{"", other.String()} {
		if _, err := Open(bytes.NewReader(stream.Bytes()), &bytes.Buffer{}, key, 100); !errors.Is(err, chat.ErrInvalid) {
			t.Errorf("opened with %q: %v", key, err)
		}
	}
}
