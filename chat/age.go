package chat

import (
	"strconv"
	"strings"
	"time"
)

// ParseAge reads a time that has passed, or is to pass: Go's durations, with days and weeks in
// front of them, as in 30d, 2w or 1d12h. The error is [ErrInvalid].
func ParseAge(s string) (time.Duration, error) {
	var sum time.Duration
	rest := s
	for _, unit := range []struct {
		letter string
		length time.Duration
	}{{"w", 7 * 24 * time.Hour}, {"d", 24 * time.Hour}} {
		digits, after, ok := strings.Cut(rest, unit.letter)
		if !ok {
			continue
		}
		n, err := strconv.ParseUint(digits, 10, 16)
		if err != nil {
			return 0, notAge(s)
		}
		sum, rest = sum+time.Duration(n)*unit.length, after
	}
	if rest == "" && sum > 0 {
		return sum, nil
	}
	d, err := time.ParseDuration(rest)
	if err != nil || d < 0 {
		return 0, notAge(s)
	}
	return sum + d, nil
}

func notAge(s string) error {
	return Invalid("cannot use %s as a time: want 30d, 2w, 24h, 1d12h or 90m", Quote(s))
}
