package cgroupfs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/chat"
)

// ReadFlat is one counter of a file such as cpu.stat or memory.events; see [Read].
func ReadFlat(dir, file, key string) (uint64, error) {
	b, err := Read(dir, file)
	if err != nil {
		return 0, err
	}
	return flat(string(b), key)
}

// ReadNumber is the counter that a file has; see [Read].
func ReadNumber(dir, file string) (uint64, error) {
	b, err := Read(dir, file)
	if err != nil {
		return 0, err
	}
	return Number(string(b))
}

// Read reads a cgroup's file; a cgroup that is gone, or goes meanwhile
// (ENODEV), is [chat.ErrNotFound].
func Read(dir, file string) ([]byte, error) {
	b, err := os.ReadFile(filepath.Join(dir, file))
	if err != nil {
		return nil, fmt.Errorf("cannot read a cgroup file: %w", NotFound(err))
	}
	return b, nil
}

// flat finds one "key value" of files such as cpu.stat and memory.events. A key that is not there
// is 0, as kernels add keys over time.
func flat(text, key string) (uint64, error) {
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) == 2 && f[0] == key {
			return Number(f[1])
		}
	}
	return 0, nil
}

// Number reads a counter; "max" is the largest one.
func Number(text string) (uint64, error) {
	s := strings.TrimSpace(text)
	if s == "max" {
		return 1<<64 - 1, nil
	}
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("cannot read a counter: %w", err)
	}
	return n, nil
}

// Write writes one value to a file of a cgroup, never making the file. A file that is not there, or
// whose cgroup goes meanwhile (ENODEV), is [chat.ErrNotFound].
func Write(dir, file, value string) error {
	w, err := os.OpenFile(filepath.Join(dir, file), os.O_WRONLY, 0)
	if err != nil {
		return fmt.Errorf("cannot open a cgroup file: %w", NotFound(err))
	}
	_, err = w.WriteString(value)
	if err = errors.Join(err, w.Close()); err != nil {
		return fmt.Errorf("cannot write %q to a cgroup file: %w", value, NotFound(err))
	}
	return nil
}

// WriteIfThere writes to a file that not every kernel has.
func WriteIfThere(dir, file, value string) error {
	if _, err := os.Stat(filepath.Join(dir, file)); errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return Write(dir, file, value)
}

// NotFound turns a missing directory into the word the callers branch on.
func NotFound(err error) error {
	gone := errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENODEV)
	if gone && !errors.Is(err, chat.ErrNotFound) {
		return errors.Join(chat.ErrNotFound, err)
	}
	return err
}
