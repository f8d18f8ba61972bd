package client

import (
	"strings"
	"testing"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/test/expect"
)

// FuzzFrames: whatever a daemon sends, the client ends with a result or an error.
func FuzzFrames(f *testing.F) {
	for _, s := range []string{"", "x", `{"stream":"stdout","text":"a"}`, `{"stream":"stderr","base64":"/w=="}` + "\n" + `{"result":{"exit":3}}`, `{"error":{"kind":"denied","detail":"x"}}`, `{"result":null}`, "\n\n", strings.Repeat("[", 100), "\"\xd2\xe7\"", `{"streAm":""}` + "\n" + `{""0`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		n := 0
		_, err := readFrames(strings.NewReader(text), func(f chat.Frame) { n += len(f.Bytes()) })
		expect.True(t, n <= len(text), "%q: %d bytes out of %d, %v", text, n, len(text), err)
	})
}
