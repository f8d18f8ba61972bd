package client

import (
	"errors"
	"testing"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/test/expect"
)

// TestQuery: the fields of a filter are parameters of a query.
func TestQuery(t *testing.T) {
	awake := false
	for want, args := range map[string]any{
		"": chat.Filter{}, "?follow=true&since=0": logQuery{Since: new(int64), Follow: true},
		"?awake=false&label=a%3D%26&limit=1000000": chat.Filter{
			Label: "a=&", Awake: &awake, Limit: 1_000_000,
		},
		"?history=7&styles=true":     chat.ScreenSpec{Styles: true, History: 7},
		"?chat=x&external_id=a%2Fb+": chat.ArchiveFilter{ExternalID: "a/b ", Chat: "x"},
	} {
		got, err := queryOf(args)
		expect.True(t, err == nil && got == want, "%+v: %s, %v", args, got, err)
	}
	if got, err := queryOf(chat.Filter{ExternalID: "half \xe9"}); !errors.Is(err, chat.ErrInvalid) {
		t.Errorf("bytes that are no UTF-8 become %s, %v: another text", got, err)
	}
}

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
