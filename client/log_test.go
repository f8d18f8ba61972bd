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
	if err := readEvents(strings.NewReader(stream), keep); !errors.Is(err, chat.ErrNotFound) {
		t.Errorf("a problem as an event: %v", err)
	}
	for _, bad := range []string{"data: {\n\n", "data: " + strings.Repeat("x", maxEvent+1)} {
		if err := readEvents(strings.NewReader(bad), keep); err == nil {
			t.Errorf("%.20q is no error", bad)
		}
	}
	stop := errors.New("stop")
	if err := readEvents(strings.NewReader("data: {}\n"), func(chat.Log) error { return stop }); !errors.Is(err, stop) {
		t.Errorf("the reader's own error: %v", err)
	}
}

func FuzzReadEvents(f *testing.F) {
	f.Add("event: problem\ndata: {}\n\nid: 1\ndata: {\"text\":\"x\"}\n\n")
	f.Fuzz(func(t *testing.T, s string) {
		expect.True(t, readEvents(strings.NewReader(s), func(chat.Log) error { return nil }) != nil,
			"a stream that ends is no error")
	})
}
