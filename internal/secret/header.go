package secret

import (
	"encoding/base64"
	"net/textproto"
	"slices"
	"strings"

	"github.com/chatd/chatd/chat"
)

// Header is the form of the header that has a secret: "NAME: TEXT" with a dollar sign in the place
// of the value, such as "Authorization: Bearer $". In "Authorization: Basic USER:$" the part after
// Basic is meant before it is encoded (RFC 7617).
type Header struct {
	name          string // canonical
	before, after string // around the value
	basic         bool   // they are encoded together with the value
}

const (
	basicScheme = "Basic "
	maxHeader   = 512 // bytes of a form
)

// notForSecrets are headers that say how a message is read or passed on, are rewritten on the way,
// or have several values in one. So do all that begin with Proxy- and Sec-.
var notForSecrets = []string{
	"Accept-Encoding", "Connection", "Content-Encoding", "Content-Length", "Content-Type", "Cookie",
	"Expect", "Host", "Http2-Settings", "Keep-Alive", "Range", "Te", "Trailer",
	"Transfer-Encoding", "Upgrade",
}

// ParseHeader reads a form.
func ParseHeader(s string) (Header, error) {
	name, text, ok := strings.Cut(s, ":")
	h := Header{name: textproto.CanonicalMIMEHeaderKey(name)}
	text = strings.TrimPrefix(text, " ")
	var rest string
	var dollar bool
	rest, h.basic = strings.CutPrefix(text, basicScheme)
	h.before, h.after, dollar = strings.Cut(rest, "$")
	switch {
	case !ok || len(s) > maxHeader || !isToken(name):
		return Header{}, headerError(s, "it has no name")
	case slices.Contains(notForSecrets, h.name) || strings.HasPrefix(h.name, "Proxy-") ||
		strings.HasPrefix(h.name, "Sec-"):
		return Header{}, headerError(s, h.name+" is not for secrets")
	case !dollar || strings.Contains(h.after, "$"):
		return Header{}, headerError(s, "it has not one dollar sign")
	case strings.TrimSpace(text) != text || strings.ContainsFunc(text, notPrintable):
		return Header{}, headerError(s, "it has characters that no header has")
	case h.basic && !strings.Contains(rest, ":"):
		return Header{}, headerError(s, "Basic has a user and a password")
	}
	return h, nil
}

func headerError(s, why string) error {
	const want = `want a form like "Authorization: Bearer $", "x-api-key: $" or ` +
		`"Authorization: Basic USER:$"`
	return chat.Invalid("%s: %s: %s", chat.Quote(s), why, want)
}

func notPrintable(r rune) bool { return r < ' ' || r > '~' }

// isToken is that of RFC 9110, section 5.6.2.
func isToken(s string) bool {
	const marks = "!#$%&'*+-.^_`|~"
	return s != "" && !strings.ContainsFunc(s, func(r rune) bool {
		letter := 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9'
		return !letter && !strings.ContainsRune(marks, r)
	})
}

// Name is the header's name, in the form of net/http.
func (h Header) Name() string { return h.name }

// With returns the header's value with text in the place of the dollar sign.
func (h Header) With(text string) string {
	if h.basic {
		return basicScheme + base64.StdEncoding.EncodeToString([]byte(h.before+text+h.after))
	}
	return h.before + text + h.after
}

// Has reports whether the header's value is the form with the placeholder, and nothing else.
func (h Header) Has(value, placeholder string) bool {
	if rest, ok := strings.CutPrefix(value, basicScheme); h.basic && ok {
		b, err := base64.StdEncoding.DecodeString(rest)
		return err == nil && string(b) == h.before+placeholder+h.after
	}
	return !h.basic && value == h.With(placeholder)
}

// Traces are the texts by which the value of a secret is known in what a server sends.
func (h Header) Traces(v Value) []string {
	if h.basic {
		return []string{v.Reveal(), strings.TrimPrefix(h.With(v.Reveal()), basicScheme)}
	}
	return []string{v.Reveal()}
}

// String is the form that ParseHeader reads.
func (h Header) String() string {
	text := h.before + "$" + h.after
	if h.basic {
		text = basicScheme + text
	}
	return h.name + ": " + text
}

// MarshalText is [Header.String].
func (h Header) MarshalText() ([]byte, error) { return []byte(h.String()), nil }

// UnmarshalText is [ParseHeader].
func (h *Header) UnmarshalText(b []byte) error {
	parsed, err := ParseHeader(string(b))
	if err == nil {
		*h = parsed
	}
	return err
}
