package api

import (
	"errors"
	"testing"

	"github.com/chatd/chatd/chat"
)

// TestEncode: a text that JSON cannot carry is not sent as another one.
func TestEncode(t *testing.T) {
	for text, valid := range map[string]bool{
		"": true, "é": true, "\ufffd": true, `\ufffd`: true, "\\": true, `\\ufffd`: true,
		"\xff": false, "a\\\xff": false, "half \xe9": false,
	} {
		b, err := encode(chat.Input{Text: text})
		if (err == nil) != valid || err != nil && !errors.Is(err, chat.ErrInvalid) {
			t.Errorf("%q: %s, %v", text, b, err)
		}
	}
}
