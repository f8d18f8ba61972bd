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

func oneOf(dst *string, words ...string) func(string) error {
	return func(s string) error {
		if !slices.Contains(words, s) {
			return fmt.Errorf("%s: want %s: %w", chat.Quote(s), strings.Join(words, ", "), chat.ErrInvalid)
		}
		*dst = s
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

func timeoutMax(dst *chat.Duration) func(string) error {
	return func(s string) error {
		if err := dst.UnmarshalText([]byte(s)); err != nil {
			return err
		}
		return chat.CheckTimeoutMax(*dst)
	}
}

// sleepAfter reads a time, in days too.
func sleepAfter(dst *chat.Duration) func(string) error {
	return func(s string) error {
		d, err := chat.ParseAge(s)
		if err != nil {
			return err
		}
		*dst = chat.Duration(d)
		return chat.CheckSleepAfter(*dst)
	}
}

// freezeAfter reads freeze_after of a profile whose sleep_after is read.
func freezeAfter(p *chat.Profile) func(string) error {
	return func(s string) error {
		d, err := chat.ParseAge(s)
		if err != nil {
			return err
		}
		p.FreezeAfter = chat.Duration(d)
		return chat.CheckFreezeAfter(p.FreezeAfter, p.SleepAfter)
	}
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

// auditSize refuses sizes so small that a log would hold a few lines, as after a mistaken unit.
func auditSize(dst *uint64) func(string) error {
	return func(s string) error {
		n, err := ParseSize(s)
		if err == nil && n != 0 && n < 64<<10 {
			err = fmt.Errorf("%s: want 0, for never, or at least 64KiB: %w", chat.Quote(s), chat.ErrInvalid)
		}
		*dst = n
		return err
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

func layerName(s string) (chat.LayerName, error) {
	if names := chat.LayerNames(); !slices.Contains(names, chat.LayerName(s)) {
		return "", fmt.Errorf("%s: want one of %s: %w", chat.Quote(s), join(names), chat.ErrInvalid)
	}
	return chat.LayerName(s), nil
}

func sizeInto(dst *uint64) func(string) error {
	return func(s string) (err error) {
		*dst, err = ParseSize(s)
		return err
	}
}

// maxFileMax is the highest file_max, in bytes; the lowest is the size of a request's text.
const maxFileMax = 1 << 40

func fileSize(dst *uint64) func(string) error {
	return func(s string) error {
		n, err := ParseSize(s)
		if err == nil && (n < files.MaxText || n > maxFileMax) {
			err = fmt.Errorf("%s: want 1MiB to 1TiB: %w", chat.Quote(s), chat.ErrInvalid)
		}
		*dst = n
		return err
	}
}

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
