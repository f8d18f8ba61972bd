package account

import (
	"testing"

	"github.com/chatd/chatd/test/expect"
)

// TestUnknownToNSS: an account that resolves by its name alone, or by its number alone, is known.
func TestUnknownToNSS(t *testing.T) {
	for _, c := range []struct {
		name string
		id   uint32
		want bool
	}{
		{"root", 4000000001, false},
		{"chat-of-nobody", 0, false},
		{"chat-of-nobody", 4000000001, true},
	} {
		expect.Equal(t, unknownToNSS(t.Context(), User{Name: c.name, ID: c.id}), c.want,
			"%s, %d", c.name, c.id)
	}
}
