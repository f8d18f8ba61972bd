package main

import (
	"fmt"
	"testing"
	"time"

	"github.com/chatd/chatd/chat"
)

// TestEgressNewer: following prints each event once, whatever entry counts it.
func TestEgressNewer(t *testing.T) {
	at := time.Date(2026, 11, 25, 10, 0, 10, 0, time.UTC)
	entry := func(host string, from, until time.Duration, n int64) chat.EgressEvent {
		return chat.EgressEvent{Time: at.Add(from), Until: at.Add(until), Count: n, Sent: 10 * n,
			Received: n, EgressKind: chat.EgressKind{Verdict: chat.EgressAllowed, Host: host}}
	}
	var seen egressSeen
	for i, tt := range []struct {
		entries []chat.EgressEvent
		want    string // host count sent received second
	}{
		{nil, ""},
		{[]chat.EgressEvent{entry("a", 0, 0, 2)}, "a 2 20 2 10; "},
		{[]chat.EgressEvent{entry("a", 0, 0, 2)}, ""},
		{[]chat.EgressEvent{entry("a", 0, 3*time.Second, 5), entry("b", 0, 0, 1)},
			"a 3 30 3 13; b 1 10 1 10; "},
		// an entry that began earlier than was known is the same
		{[]chat.EgressEvent{entry("a", -time.Second, 4*time.Second, 6)}, "a 1 10 1 14; "},
		{[]chat.EgressEvent{entry("a", -time.Second, 4*time.Second, 6),
			entry("a", time.Minute, time.Minute, 6)}, "a 6 60 6 10; "},
		{[]chat.EgressEvent{entry("a", 0, 5*time.Second, 1)}, "a 1 10 1 10; "}, // of a new chatd-root
	} {
		got := ""
		for _, e := range seen.newer(tt.entries) {
			got += fmt.Sprintln(e.Host, e.Count, e.Sent, e.Received, e.Time.Second())
			got = got[:len(got)-1] + "; "
		}
		if got != tt.want {
			t.Errorf("%d: %q, want %q", i, got, tt.want)
		}
	}
}

// TestOpenNewer: following prints each connection once, when it is first seen open.
func TestOpenNewer(t *testing.T) {
	at := time.Date(2026, 11, 25, 10, 0, 10, 0, time.UTC)
	conn := func(host string, since, sent int) chat.EgressConnection {
		return chat.EgressConnection{Since: at.Add(time.Duration(since)), Host: host, Port: 443,
			Sent: int64(sent)}
	}
	var seen openSeen
	for i, tt := range []struct {
		open []chat.EgressConnection
		want string
	}{
		{nil, "[]"},
		{[]chat.EgressConnection{conn("a", 0, 0)}, "[a:443]"},
		{[]chat.EgressConnection{conn("a", 0, 7), conn("a", 1, 0), conn("b", 0, 0)}, "[a:443 b:443]"},
		{[]chat.EgressConnection{conn("a", 1, 9)}, "[]"},
		{[]chat.EgressConnection{conn("a", 2, 0)}, "[a:443]"},
	} {
		got := []string{}
		for _, c := range seen.newer(tt.open) {
			got = append(got, c.To())
		}
		if fmt.Sprint(got) != tt.want {
			t.Errorf("%d: %v, want %s", i, got, tt.want)
		}
	}
}
