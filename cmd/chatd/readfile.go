package main

import (
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/chatd/chatd/chat"
)

// maxTextFile bounds a file of rules or of config before anybody parses it, in bytes.
const maxTextFile = 4 << 20

// readTextFile reads a regular file of at most [maxTextFile] bytes. A FIFO would wait for
// ever, and a device may have no end.
func readTextFile(name string) ([]byte, error) {
	f, err := os.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	fi, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !fi.Mode().IsRegular() {
		return nil, fmt.Errorf("%s: its mode is %s, want a regular file", chat.Quote(name), fi.Mode())
	}
	text, err := io.ReadAll(io.LimitReader(f, maxTextFile+1))
	if err == nil && len(text) > maxTextFile {
		err = fmt.Errorf("%s: it has more than %d bytes", chat.Quote(name), maxTextFile)
	}
	return text, err
}

// endAtOnce has an interrupt end the program whatever it waits for: for a command that
// has nothing to put back.
func endAtOnce() { signal.Reset(os.Interrupt, syscall.SIGTERM) }
