package secret

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"io"

	"github.com/chatd/chatd/chat"
)

// Prefix begins each placeholder.
const Prefix = "chatd-secret-"

// Keys makes placeholders of a key that only root has, so that nothing needs to be kept and no chat
// can guess another's.
type Keys struct{ key []byte }

// NewKeys returns those of a key.
func NewKeys(key []byte) Keys { return Keys{key} }

// Placeholder is what a chat has in the place of a secret: the same in every session.
func (k Keys) Placeholder(id chat.ID, name string) string {
	mac := hmac.New(sha256.New, k.key)
	_, _ = io.WriteString(mac, string(id)+"\x00"+name) // a hash takes everything
	return Prefix + hex.EncodeToString(mac.Sum(nil)[:16])
}

// Grant is a secret that a chat may use, as chatd-root tells it to chatd-egress.
type Grant struct {
	Name        string `json:"name"`
	Placeholder string `json:"placeholder"`
}
