package archive

import (
	"bytes"
	"strings"
	"testing"

	"filippo.io/age"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// TestSeal: what is sealed is opened again, by an identity of a recipient or that of the check, and
// by no other; it is bounded, and a cut or flipped one is an error.
func TestSeal(t *testing.T) {
	mine := must.Get(age.GenerateX25519Identity())(t)
	for name, recipients := range map[string]string{"clear": "", "age": mine.Recipient().String()} {
		t.Run(name, func(t *testing.T) { sealed(t, recipients, mine.String()) })
	}
	expect.NoError(t, expect.Err(CheckKey("")))
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
		expect.True(t, err == nil && out.String() == text && got.SHA256 == s.SHA256,
			"opened %q, %+v, %v", out.String(), got, err)
		expect.Is(t, expect.Err(Open(bytes.NewReader(stream.Bytes()), &out, key, int64(len(text)-1))), chat.ErrInvalid,
			"over its bound")
		_, err = Open(bytes.NewReader(stream.Bytes()[:stream.Len()-1]), &out, key, 100)
		expect.True(t, err != nil, "a stream that is cut off is opened")
	}
	if recipients == "" {
		return
	}
	other, _ := age.GenerateX25519Identity()
	for _, key := range []string{"", other.String()} {
		expect.Is(t, expect.Err(Open(bytes.NewReader(stream.Bytes()), &bytes.Buffer{}, key, 100)), chat.ErrInvalid,
			"opened with %q", key)
	}
}
