package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/shims/archive"
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
	// keys reads the keys that it needs, and returns those of the check.
	keys func(o *options, in *bufio.Reader) (check string, err error)
	do   func(o options) (archive.Summary, error)
}

var verbs = map[string]verb{
	"pack": {1, to(""), func(o options) (archive.Summary, error) {
		return o.inside(0, func(dir *os.File) (archive.Summary, error) {
			return archive.Pack(dir, o.out, o.keys, o.Meter)
		})
	}},
	"check": {0, from, func(o options) (archive.Summary, error) {
		return archive.Check(o.in, o.keys, o.Limits)
	}},
	"unpack": {1, from, func(o options) (archive.Summary, error) {
		return o.inside(0, func(dir *os.File) (archive.Summary, error) {
			return archive.Unpack(dir, o.in, o.keys, o.Limits)
		})
	}},
	"seal": {0, to("\x00"), func(o options) (archive.Summary, error) {
		return archive.Seal(o.in, o.out, o.keys)
	}},
	"open": {0, from, func(o options) (archive.Summary, error) {
		return archive.Open(o.in, o.out, o.keys, o.Bytes)
	}},
	"clone": {2, wait, func(o options) (archive.Summary, error) {
		return o.inside(0, func(dir *os.File) (archive.Summary, error) {
			return o.inside(1, func(to *os.File) (archive.Summary, error) {
				return archive.Clone(dir, to, o.Meter)
			})
		})
	}},
}

func (o options) do() (d done, err error) {
	in := bufio.NewReaderSize(o.in, 64<<10)
	o.in = in
	if d.CheckIdentity, err = verbs[o.verb].keys(&o, in); err == nil {
		d.Summary, err = verbs[o.verb].do(o)
	}
	return d, err
}

// to reads the recipients, and adds that of the check if one is asked for. Those on standard input
// end with end, or with it.
func to(end string) func(*options, *bufio.Reader) (string, error) {
	return func(o *options, in *bufio.Reader) (check string, err error) {
		o.keys, err = keys(o.recipients, in, end)
		if err == nil && o.keys != "" && o.checkKey {
			o.keys, check, err = archive.CheckKey(o.keys)
		}
		return check, err
	}
}

// from reads the identities that decrypt the stream.
func from(o *options, in *bufio.Reader) (_ string, err error) {
	o.keys, err = keys(o.identities, in, "\x00")
	return "", err
}

// wait waits for the input: the tree stands still by then.
func wait(_ *options, in *bufio.Reader) (string, error) {
	if _, err := in.ReadByte(); err != nil {
		return "", chat.Invalid("nobody asked for it: %w", err)
	}
	return "", nil
}

// maxKeys bounds a file of recipients or identities, in bytes.
const maxKeys = 1 << 20

// keys reads a file of recipients or identities; - is in, up to end, which may be its own end.
func keys(name string, in *bufio.Reader, end string) (text string, err error) {
	switch {
	case name == "":
		return "", nil
	case name == "-" && end != "":
		text, err = upTo(in, end[0])
	case name == "-":
		text, err = readKeys(in)
	default:
		var f *os.File
		if f, err = os.Open(name); err != nil {
			return "", chat.Invalid("cannot read the keys: %w", err)
		}
		text, err = readKeys(f)
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		return "", fmt.Errorf("cannot read the keys: %w", err)
	}
	if strings.TrimSpace(text) == "" { // it must not mean "not encrypted"
		return "", chat.Invalid("cannot read the keys: %s is empty", chat.Quote(name))
	}
	return text, nil
}

func readKeys(in io.Reader) (string, error) {
	text, err := io.ReadAll(io.LimitReader(in, maxKeys))
	return string(text), err
}

// upTo reads until end, which is not returned.
func upTo(in *bufio.Reader, end byte) (string, error) {
	var text []byte
	for len(text) < maxKeys {
		b, err := in.ReadByte()
		if err != nil {
			return "", chat.Invalid("no NUL follows them: %w", err)
		}
		if b == end {
			return string(text), nil
		}
		text = append(text, b)
	}
	return "", chat.Invalid("over %d bytes", maxKeys)
}

// inside calls act with the directory of an argument.
func (o options) inside(
	arg int, act func(*os.File) (archive.Summary, error),
) (s archive.Summary, err error) {
	dir, err := os.Open(o.args[arg])
	if err != nil {
		return s, chat.Invalid("cannot open the directory: %w", err)
	}
	s, err = act(dir)
	return s, errors.Join(err, dir.Close())
}
