package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/chatd/chatd/archive"
	"github.com/chatd/chatd/chat"
)

// done is what a command answers.
type done struct {
	archive.Summary
	// CheckIdentity is that of --check-key.
	CheckIdentity string `json:"check_identity,omitempty"`
}

// verb is one command.
type verb struct {
	args int
	do   func(options) (done, error)
}

var verbs = map[string]verb{
	"pack": {1, pack}, "check": {0, check}, "unpack": {1, unpack}, "seal": {0, seal},
	"open": {0, open}, "clone": {2, clone},
}

func (o options) do() (done, error) { return verbs[o.verb].do(o) }

func pack(o options) (d done, err error) {
	to, d, err := o.to("")
	if err != nil {
		return d, err
	}
	d.Summary, err = inside(o.args[0], func(dir *os.File) (archive.Summary, error) {
		return archive.Pack(dir, o.out, to, o.Meter)
	})
	return d, err
}

func check(o options) (d done, err error) {
	in, with, err := o.from()
	if err != nil {
		return d, err
	}
	d.Summary, err = archive.Check(in, with, o.Limits)
	return d, err
}

func unpack(o options) (d done, err error) {
	in, with, err := o.from()
	if err != nil {
		return d, err
	}
	d.Summary, err = inside(o.args[0], func(dir *os.File) (archive.Summary, error) {
		return archive.Unpack(dir, in, with, o.Limits)
	})
	return d, err
}

func seal(o options) (d done, err error) {
	in := bufio.NewReader(o.in)
	o.in = in
	to, d, err := o.to("\x00")
	if err != nil {
		return d, err
	}
	d.Summary, err = archive.Seal(in, o.out, to)
	return d, err
}

func open(o options) (d done, err error) {
	in, with, err := o.from()
	if err != nil {
		return d, err
	}
	d.Summary, err = archive.Open(in, o.out, with, o.Bytes)
	return d, err
}

// clone waits for its input: the tree stands still by then.
func clone(o options) (d done, err error) {
	if _, err := io.ReadFull(o.in, make([]byte, 1)); err != nil {
		return d, fmt.Errorf("nobody asked for it: %w: %w", err, chat.ErrInvalid)
	}
	d.Summary, err = inside(o.args[0], func(dir *os.File) (archive.Summary, error) {
		return inside(o.args[1], func(to *os.File) (archive.Summary, error) {
			return archive.Clone(dir, to, o.Meter)
		})
	})
	return d, err
}

// to returns the recipients, and that of the check if one is asked for. Those on standard input end
// with end, or with it.
func (o options) to(end string) (recipients string, d done, err error) {
	if recipients, err = keys(o.recipients, o.in, end); err != nil || recipients == "" {
		return "", d, err
	}
	if o.checkKey {
		recipients, d.CheckIdentity, err = archive.CheckKey(recipients)
	}
	return recipients, d, err
}

// from returns the stream to read, and the identities that decrypt it.
func (o options) from() (io.Reader, string, error) {
	in := bufio.NewReaderSize(o.in, 64<<10)
	with, err := keys(o.identities, in, "\x00")
	return in, with, err
}

// maxKeys bounds a file of recipients or identities, in bytes.
const maxKeys = 1 << 20

// keys reads a file of recipients or identities; - is in, up to end, which may be its own end.
func keys(name string, in io.Reader, end string) (text string, err error) {
	switch {
	case name == "":
		return "", nil
	case name == "-" && end != "":
		text, err = upTo(in.(io.ByteReader), end[0])
	case name == "-":
		text, err = readKeys(in)
	default:
		var f *os.File
		if f, err = os.Open(name); err != nil {
			return "", fmt.Errorf("cannot read the keys: %w: %w", err, chat.ErrInvalid)
		}
		text, err = readKeys(f)
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		return "", fmt.Errorf("cannot read the keys: %w", err)
	}
	if strings.TrimSpace(text) == "" { // it must not mean "not encrypted"
		return "", fmt.Errorf("cannot read the keys: %s is empty: %w", chat.Quote(name),
			chat.ErrInvalid)
	}
	return text, nil
}

func readKeys(in io.Reader) (string, error) {
	text, err := io.ReadAll(io.LimitReader(in, maxKeys))
	return string(text), err
}

// upTo reads until end, which is not returned.
func upTo(in io.ByteReader, end byte) (string, error) {
	var text []byte
	for len(text) < maxKeys {
		b, err := in.ReadByte()
		if err != nil {
			return "", fmt.Errorf("no NUL follows them: %w: %w", err, chat.ErrInvalid)
		}
		if b == end {
			return string(text), nil
		}
		text = append(text, b)
	}
	return "", fmt.Errorf("over %d bytes: %w", maxKeys, chat.ErrInvalid)
}

// inside calls act with the open directory.
func inside(
	name string, act func(*os.File) (archive.Summary, error),
) (s archive.Summary, err error) {
	dir, err := os.Open(name)
	if err != nil {
		return s, fmt.Errorf("cannot open the directory: %w: %w", err, chat.ErrInvalid)
	}
	s, err = act(dir)
	return s, errors.Join(err, dir.Close())
}
