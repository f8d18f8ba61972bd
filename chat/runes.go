package chat

import "unicode/utf8"

// WholeRunes is how many bytes of b are left without a character of UTF-8 that begins at
// its end and does not end there. What is no UTF-8 is not cut.
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
