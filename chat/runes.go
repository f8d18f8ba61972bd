package chat

import "unicode/utf8"

// WholeRunes is the length of b without an incomplete UTF-8 character at its end. Bytes that are
// not UTF-8 are not cut.
func WholeRunes(b []byte) int {
	for i := len(b) - 1; i >= 0 && i > len(b)-utf8.UTFMax; i-- {
		if utf8.RuneStart(b[i]) {
			if !utf8.FullRune(b[i:]) {
				return i
			}
			break
		}
	}
	return len(b)
}

// InvalidBytes counts the bytes of p that are no UTF-8.
func InvalidBytes(p []byte) (n int64) {
	for len(p) > 0 {
		r, size := utf8.DecodeRune(p)
		if r == utf8.RuneError && size == 1 {
			n++
		}
		p = p[size:]
	}
	return n
}
