package shims

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/chatd/chatd/chat"
)

// InsidePolicy is the policy of a session's shims, as JSON; it lies in InsidePolicyDir, where
// root may replace it. InsideDenials is the fifo for their denials.
const (
	InsidePolicyDir = InsideDir + "/policy"
	InsidePolicy    = InsidePolicyDir + "/policy.json"
	InsideDenials   = InsideDir + "/denials"
)

// ShimPolicy is the policy by which shims check; each reads it when it starts. The chat may read
// it. Network and Egress are those of the start of chatd.
type ShimPolicy struct {
	// Home and Agent are the chat's.
	Home  string `json:"home"`
	Agent string `json:"agent"`
	// Guard are the keys of the profile.
	Guard chat.Guard `json:"guard"`
	// Rules is a file of file rules (package filerules); empty if there are none, or none
	// that the chat may see.
	Rules string `json:"rules,omitempty"`
	// Network and Egress are the profile's.
	Network chat.Network `json:"network"`
	Egress  []chat.Allow `json:"egress,omitempty"`
}

// maxShimPolicy bounds its JSON, in bytes.
const maxShimPolicy = 4 << 20

// JSON is the content of [InsidePolicy].
func (p ShimPolicy) JSON() ([]byte, error) {
	b, err := json.Marshal(p)
	if err == nil && len(b) > maxShimPolicy {
		err = fmt.Errorf("%d bytes, want at most %d: %w", len(b), maxShimPolicy, chat.ErrInvalid)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot write the policy of the shims: %w", err)
	}
	return b, nil
}

// ReadShimPolicy reads a policy; a session without one has the zero policy.
func ReadShimPolicy(name string) (ShimPolicy, error) {
	var p ShimPolicy
	f, err := os.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return p, nil
	}
	if err != nil {
		return p, fmt.Errorf("cannot read the policy of the shims: %w", err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxShimPolicy+1))
	if err == nil {
		err = strict(text, &p)
	}
	if err != nil {
		return p, fmt.Errorf("cannot read the policy of the shims: %w: %w", err, chat.ErrInvalid)
	}
	return p, nil
}

// ShimDenial is a shim's report of a command that it denied. It comes from a process of the
// chat, which can omit or forge it.
type ShimDenial struct {
	Program string `json:"program"`
	// Argv is the command line, Quote'd and cut.
	Argv string `json:"argv"`
	Rule string `json:"rule"`
}

// MaxShimDenial bounds a line of the fifo: the kernel may split a longer write (pipe(7),
// PIPE_BUF).
const MaxShimDenial = 4096

// ReadShimDenials reads the fifo until its end, or until may returns false. It calls may before
// each line, then heard with the line, joined if two reads divide it, and with the parsed denial,
// or with the error of a line that no shim writes.
func ReadShimDenials(
	fifo io.Reader, may func() bool, heard func(line []byte, d ShimDenial, err error),
) {
	buf := make([]byte, MaxShimDenial)
	for have := 0; ; {
		n, err := fifo.Read(buf[have:])
		if err != nil {
			return
		}
		for have += n; have > 0; {
			line, rest, whole := bytes.Cut(buf[:have], []byte("\n"))
			if !whole && have < len(buf) {
				break
			}
			if !may() {
				return
			}
			d, err := readShimDenial(line)
			heard(line, d, err)
			have = copy(buf, rest)
		}
	}
}

// readShimDenial reads one line of the fifo.
func readShimDenial(line []byte) (ShimDenial, error) {
	var d ShimDenial
	if err := strict(line, &d); err != nil || d.Program == "" || d.Rule == "" || len(line) > MaxShimDenial {
		return ShimDenial{}, fmt.Errorf("cannot read the denial %s: want {program, argv, rule}: %w", chat.Quote(string(line)), chat.ErrInvalid)
	}
	return d, nil
}
