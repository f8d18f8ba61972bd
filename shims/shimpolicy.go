package shims

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/chatd/chatd/chat"
)

// InsidePolicy is what the shims of a session judge by, as JSON; it is a file of
// InsidePolicyDir, in which root may put another in its place. InsideDenials is the fifo
// that takes what they denied.
const (
	InsidePolicyDir = InsideDir + "/policy"
	InsidePolicy    = InsidePolicyDir + "/policy.json"
	InsideDenials   = InsideDir + "/denials"
)

// ShimPolicy is what shims judge by: what holds when they are started. The chat may read
// it. Network, Egress and Resolvers are as they were when chatd was started.
type ShimPolicy struct {
	// Home and Agent are the chat's.
	Home  string `json:"home"`
	Agent string `json:"agent"`
	// Guard are the keys of the profile.
	Guard chat.Guard `json:"guard"`
	// Rules is a file of file rules (package filerules); empty if there are none, or none
	// that the chat may see.
	Rules string `json:"rules,omitempty"`
	// Network, Egress and Resolvers are the profile's.
	Network   chat.Network `json:"network"`
	Egress    []chat.Allow `json:"egress,omitempty"`
	Resolvers bool         `json:"resolvers"`
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

// ShimDenial is what a shim says of a command that it denied. It comes from a process
// of the chat: a chat can leave it out, or make it up.
type ShimDenial struct {
	Program string `json:"program"`
	// Argv is the command line, Quote'd and cut.
	Argv string `json:"argv"`
	Rule string `json:"rule"`
}

// MaxShimDenial bounds a line of the fifo: what is longer is not written in one piece
// (pipe(7), PIPE_BUF).
const MaxShimDenial = 4096

// ReadShimDenial reads one line of the fifo.
func ReadShimDenial(line []byte) (ShimDenial, error) {
	var d ShimDenial
	if err := strict(line, &d); err != nil || d.Program == "" || d.Rule == "" || len(line) > MaxShimDenial {
		return ShimDenial{}, fmt.Errorf("cannot read the denial %s: want {program, argv, rule}: %w", chat.Quote(string(line)), chat.ErrInvalid)
	}
	return d, nil
}
