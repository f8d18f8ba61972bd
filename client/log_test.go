package client

import (
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/test/expect"
)

func TestReadEvents(t *testing.T) {
	var got []string
	keep := func(l chat.Log) error { got = append(got, string(l.Bytes())); return nil }
	stream := "id: 2\ndata: {\"text\":\"ab\",\"cursor\":2}\n\n: nothing new\n\nid: 4\ndata: {\"base64\":\"/w==\"}\n\n"
	if err := readEvents(strings.NewReader(stream), keep); !errors.Is(err, io.ErrUnexpectedEOF) || strings.Join(got, "|") != "ab|\xff" {
		t.Errorf("%q, %v", got, err)
	}
	stream = "event: problem\ndata: {\"kind\":\"not_found\",\"detail\":\"gone\"}\n\n"
	expect.Is(t, readEvents(strings.NewReader(stream), keep), chat.ErrNotFound, "a problem as an event")
	for _, bad := range []string{"data: {\n\n", "data: " + strings.Repeat("x", maxEvent+1)} {
		err := readEvents(strings.NewReader(bad), keep)
		expect.True(t, err != nil, "%.20q is no error", bad)
	}
	stop := errors.New("stop")
	expect.Is(t, readEvents(strings.NewReader("data: {}\n"), func(chat.Log) error { return stop }), stop,
		"the reader's own error")
}

func FuzzReadEvents(f *testing.F) {
	f.Add("event: problem\ndata: {}\n\nid: 1\ndata: {\"text\":\"x\"}\n\n")
	f.Fuzz(func(t *testing.T, s string) {
		expect.True(t, readEvents(strings.NewReader(s), func(chat.Log) error { return nil }) != nil,
			"a stream that ends is no error")
	})
}
