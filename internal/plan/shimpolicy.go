package plan

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/chatd/chatd/chat"
)

// InsidePolicy is the policy of a session's shims, as JSON; it lies in InsidePolicyDir, where
// root may replace it.
const (
	InsidePolicyDir = InsideDir + "/policy"
	InsidePolicy    = InsidePolicyDir + "/policy.json"
)

// ShimPolicy is the policy by which shims check; each reads it when it starts. The chat may read
// it.
type ShimPolicy struct {
	// Home and Agent are the chat's.
	Home  string `json:"home"`
	Agent string `json:"agent"`
	// Guard are the keys of the profile.
	Guard chat.Guard `json:"guard"`
	// Rules are compiled file rules (package filerules); empty if there are none, or none
	// that the chat may see.
	Rules json.RawMessage `json:"rules,omitempty"`
}

// maxShimPolicy bounds its JSON, in bytes.
const maxShimPolicy = 4 << 20

// JSON is the content of [InsidePolicy].
func (p ShimPolicy) JSON() ([]byte, error) {
	b, err := json.Marshal(p)
	if err == nil && len(b) > maxShimPolicy {
		err = chat.Invalid("%d bytes, want at most %d", len(b), maxShimPolicy)
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
		err = chat.Strict(text, &p)
	}
	if err != nil {
		return p, chat.Invalid("cannot read the policy of the shims: %w", err)
	}
	return p, nil
}
