package chat

import (
	"fmt"
	"strings"
)

// CheckHost returns the canonical form of a host name: lower case, without the dot of the root at
// its end. Labels have letters, digits, hyphens and underscores (RFC 1123, section 2.1; RFC 2181,
// section 11). Other letters are refused: the name is looked up and compared as it stands, in the
// ASCII form that programs send (xn--, RFC 5891). A name whose last label is a number is an
// address to some programs (inet_aton(3)), and is refused.
func CheckHost(s string) (string, error) {
	name := strings.TrimSuffix(s, ".")
	if name == "" || len(name) > 253 {
		return "", fmt.Errorf("%s is no host name: want 1 to 253 characters", Quote(s))
	}
	for label := range strings.SplitSeq(name, ".") {
		if err := checkLabel(label); err != nil {
			return "", fmt.Errorf("%s is no host name: %w", Quote(s), err)
		}
	}
	if endsInNumber(name) {
		return "", fmt.Errorf("%s is no host name: some programs take it for an address", Quote(s))
	}
	return strings.ToLower(name), nil // not earlier: it makes a k of U+212A, the Kelvin sign
}

func checkLabel(label string) error {
	if label == "" || len(label) > 63 || label[0] == '-' || label[len(label)-1] == '-' {
		return fmt.Errorf("label %s: want 1 to 63 characters, and no hyphen at an end",
			Quote(label))
	}
	for _, r := range label {
		switch {
		case 'a' <= r && r <= 'z', 'A' <= r && r <= 'Z', '0' <= r && r <= '9', r == '-', r == '_':
		case r > 0x7f:
			return fmt.Errorf("label %s: want its ASCII form, which begins with xn--", Quote(label))
		default:
			return fmt.Errorf("label %s: want letters, digits, hyphens and underscores",
				Quote(label))
		}
	}
	return nil
}

// endsInNumber reports whether the last label is decimal, octal or hexadecimal (inet_aton(3)).
func endsInNumber(name string) bool {
	last := strings.ToLower(name[strings.LastIndexByte(name, '.')+1:])
	if hex, ok := strings.CutPrefix(last, "0x"); ok {
		return strings.Trim(hex, "0123456789abcdef") == ""
	}
	return last != "" && strings.Trim(last, "0123456789") == ""
}
