package chat

import "testing"

func TestWholeRunes(t *testing.T) {
	for text, want := range map[string]int{
		"": 0, "a": 1, "aä": 3, "a\xc3": 1, "a\xe2\x82": 1, "a\xe2\x82\xac": 4, "a\xf0\x9f\x98": 1, "\xf0\x9f\x98\x80": 4, "\xc3": 0,
		"a\xff": 2, "\x80\x80\x80": 3, "a\xf0\x80\x80\x80\x80": 6, "a\xe2a": 3,
	} {
		if got := WholeRunes([]byte(text)); got != want {
			t.Errorf("%q: %d, want %d", text, got, want)
		}
	}
}
