package chat

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
)

// ID names a chat on this host: 16 lower-case hex digits. It is safe in a file
// name, an argument, a unit name and a user name; an external id never is.
type ID string

// UserPrefix precedes the ID in the name of the chat's Linux user.
const UserPrefix = "chat-"

// idWindows is how many disjoint 64-bit windows one HMAC-SHA256 holds.
const idWindows = sha256.Size / 8

// ParseID accepts only the form that DeriveID makes. Upper case or a prefix is [ErrInvalid] too:
// two spellings of one id would be two chats.
func ParseID(s string) (ID, error) {
	if len(s) != 16 {
		return "", Invalid("cannot use %s as a chat id: want 16 hex digits, got %d bytes", Quote(s), len(s))
	}
	if strings.Trim(s, digits+"abcdef") != "" {
		return "", Invalid("cannot use %s as a chat id: want lower-case hex digits", Quote(s))
	}
	return ID(s), nil
}

// User is the chat's Linux user and group name, "chat-" and the ID: 21 bytes,
// within the 31 that useradd(8) and systemd's user-name rules allow.
func (id ID) User() string { return UserPrefix + string(id) }

// DeriveID computes the id of (owner, externalID) under the install key: 64 bits of
// HMAC-SHA256(key, owner NUL externalID). External ids are often phone numbers; without the key one
// could guess them from the public user name. window, 0 to 3, chooses the 64 bits; after a
// collision the caller tries the next.
func DeriveID(key []byte, owner, externalID string, window int) (ID, error) {
	if window < 0 || window >= idWindows {
		return "", fmt.Errorf("cannot derive an id: window %d is not in 0–%d: %w", window,
			idWindows-1, ErrBusy)
	}
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(owner))
	mac.Write([]byte{0})
	mac.Write([]byte(externalID))
	sum := mac.Sum(nil)
	return ID(hex.EncodeToString(sum[window*8 : window*8+8])), nil
}
