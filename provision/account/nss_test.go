package account

import "testing"

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
		if got := unknownToNSS(t.Context(), User{Name: c.name, ID: c.id}); got != c.want {
			t.Errorf("%s, %d: %v, want %v", c.name, c.id, got, c.want)
		}
	}
}
