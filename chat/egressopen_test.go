package chat

import (
	"fmt"
	"testing"
	"time"
)

// TestEgressOpen: of many connections the oldest and the newest are there, by age, and the count
// has all.
func TestEgressOpen(t *testing.T) {
	at := time.Date(2026, 11, 25, 10, 0, 0, 0, time.UTC)
	for _, n := range []int{0, 1, MaxEgressOpen, MaxEgressOpen + 1, 640} {
		var all []EgressConnection
		for i := range n {
			i = (i*7 + 3) % n // in another order
			all = append(all, EgressConnection{Since: at.Add(time.Duration(i) * time.Second),
				Host: fmt.Sprint("h", i), Port: 443})
		}
		o := NewEgressOpen(all)
		k := len(o.Connections)
		if o.Count != n || k != min(n, MaxEgressOpen) || o.Validate() != nil ||
			o.Connections == nil {
			t.Fatalf("%d connections of %d, %v", k, n, o.Validate())
		}
		if n == 640 && (o.Connections[0].Host != "h0" || o.Connections[49].Host != "h49" ||
			o.Connections[50].Host != "h590" || o.Connections[99].Host != "h639") {
			t.Errorf("%+v", o.Connections)
		}
	}
}

func TestEgressOpenRefused(t *testing.T) {
	at := time.Date(2026, 11, 25, 10, 0, 0, 0, time.UTC)
	one := func(f func(*EgressConnection)) EgressOpen {
		c := EgressConnection{Since: at, Host: "a.example", Port: 443}
		f(&c)
		return EgressOpen{Count: 1, Connections: []EgressConnection{c}}
	}
	if err := one(func(*EgressConnection) {}).Validate(); err != nil {
		t.Fatal(err)
	}
	for name, o := range map[string]EgressOpen{
		"fewer than there are": {Connections: make([]EgressConnection, 1)},
		"too many": {Count: 1000,
			Connections: make([]EgressConnection, MaxEgressOpen+1)},
		"a count below 0":     {Count: -1},
		"what it says itself": {Unknown: "x"},
		"no time":             one(func(c *EgressConnection) { c.Since = time.Time{} }),
		"a host that draws":   one(func(c *EgressConnection) { c.Host = "a\x1b[2J" }),
		"no address":          one(func(c *EgressConnection) { c.Host, c.Address = "", "x" }),
		"bytes below 0":       one(func(c *EgressConnection) { c.Sent = -1 }),
	} {
		if o.Validate() == nil {
			t.Errorf("%s is taken", name)
		}
	}
}
