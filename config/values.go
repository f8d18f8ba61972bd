package config

import (
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/files"
)

func dir(dst *string) func(string) error {
	return func(s string) error {
		if !filepath.IsAbs(s) || strings.ContainsAny(s, "\x00\n") {
			return fmt.Errorf("%s: want an absolute path: %w", chat.Quote(s), chat.ErrInvalid)
		}
		*dst = filepath.Clean(s)
		return nil
	}
}

func oneOf[S ~string](dst *S, words ...S) func(string) error {
	return func(s string) error {
		if !slices.Contains(words, S(s)) {
			return fmt.Errorf("%s: want one of %s: %w", chat.Quote(s), join(words), chat.ErrInvalid)
		}
		*dst = S(s)
		return nil
	}
}

func word(what string, dst *string) func(string) error {
	return func(s string) error {
		*dst = s
		return chat.CheckName(what, s)
	}
}

func number(dst *int, low, high int) func(string) error {
	return func(s string) error {
		n, err := strconv.Atoi(s)
		if err != nil || n < low || n > high {
			return fmt.Errorf("%s: want %d to %d: %w", chat.Quote(s), low, high, chat.ErrInvalid)
		}
		*dst = n
		return nil
	}
}

// into reads a value that passes check; a faulty one leaves dst as it is.
func into[T any](dst *T, parse func(string) (T, error), check func(T) error) func(string) error {
	return func(s string) error {
		v, err := parse(s)
		if err == nil {
			err = check(v)
		}
		if err == nil {
			*dst = v
		}
		return err
	}
}

// age reads a time, in days too, that passes check.
func age(dst *chat.Duration, check func(chat.Duration) error) func(string) error {
	return into(dst, func(s string) (chat.Duration, error) {
		d, err := chat.ParseAge(s)
		return chat.Duration(d), err
	}, check)
}

// duration reads a time without days.
func duration(s string) (d chat.Duration, err error) {
	err = d.UnmarshalText([]byte(s))
	return d, err
}

// boolean reads a key that is on or off.
func boolean(dst *bool) func(string) error {
	return func(s string) error {
		if s != "true" && s != "false" {
			return fmt.Errorf("%s: want true or false: %w", chat.Quote(s), chat.ErrInvalid)
		}
		*dst = s == "true"
		return nil
	}
}

// uidRange refuses uids below 65536, which belong to the system, and those from 2^31 on, which many
// programs read as negative.
func uidRange(dst *UIDRange) func(string) error {
	return func(s string) error {
		a, b, _ := strings.Cut(s, "-")
		low, err1 := strconv.ParseUint(a, 10, 31)
		high, err2 := strconv.ParseUint(b, 10, 31)
		if err1 != nil || err2 != nil || low > high || low < 1<<16 {
			return fmt.Errorf("%s: want LOW-HIGH within 65536-2147483647: %w", chat.Quote(s), chat.ErrInvalid)
		}
		*dst = UIDRange{uint32(low), uint32(high)}
		return nil
	}
}

// size reads a size that is ok.
func size(dst *uint64, ok func(n uint64) bool, want string) func(string) error {
	return func(s string) error {
		n, err := ParseSize(s)
		switch {
		case err != nil:
			return err
		case !ok(n):
			return fmt.Errorf("%s: want %s: %w", chat.Quote(s), want, chat.ErrInvalid)
		}
		*dst = n
		return nil
	}
}

func anySize(uint64) bool { return true }

// fitsFiles reports whether file_max may be n: the lowest is the size of a request's text.
func fitsFiles(n uint64) bool { return n >= files.MaxText && n <= 1<<40 }

// fitsAudit refuses sizes so small that a log would hold a few lines, as after a mistaken unit.
func fitsAudit(n uint64) bool { return n == 0 || n >= 64<<10 }

// ParseSize reads a number, with KiB, MiB, GiB or TiB after it or without.
func ParseSize(s string) (uint64, error) {
	digits, shift := s, 0
	for i, unit := range []string{"KiB", "MiB", "GiB", "TiB"} {
		if rest, ok := strings.CutSuffix(s, unit); ok {
			digits, shift = strings.TrimRight(rest, " "), 10*(i+1)
		}
	}
	n, err := strconv.ParseUint(digits, 10, 64)
	if err != nil || n > 1<<62>>shift {
		return 0, fmt.Errorf("%s: want a number, or one with KiB, MiB, GiB or TiB: %w", chat.Quote(s), chat.ErrInvalid)
	}
	return n << shift, nil
}
