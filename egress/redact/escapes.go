package redact

import (
	"fmt"
	"html"
	"net/url"
	"slices"
	"strings"
)

// escapes are the usual ways in which programs write a text: JSON as most, PHP, Go and .NET have
// it, HTML with names and numbers, and the forms of URLs. Each is of all characters that it is for.
var escapes = []func(string) string{
	strings.NewReplacer(`"`, `\"`, `\`, `\\`).Replace,
	strings.NewReplacer(`"`, `\"`, `\`, `\\`, `/`, `\/`).Replace,
	jsonHex(`<>&`, "%04x", false), jsonHex(`<>&`, "%04X", false),
	jsonHex(`<>&`, "%04X", true), jsonHex(`<>&'"`, "%04X", true),
	jsonHex("<>&'\"+`", "%04X", false), jsonHex("<>&'+=", "%04x", false),
	jsonHex("", "%04x", false), jsonHex("", "%04X", false),
	html.EscapeString,
	strings.NewReplacer(`&`, "&amp;", `<`, "&lt;", `>`, "&gt;").Replace,
	strings.NewReplacer(`&`, "&amp;", `<`, "&lt;", `>`, "&gt;", `"`, "&quot;").Replace,
	entities("&quot;", "&#39;"), entities("&quot;", "&#039;"), entities("&quot;", "&#x27;"),
	entities("&quot;", "&#x27;", "/", "&#x2F;"),
	entities("&quot;", "&#39;", "/", "&#x2F;", "=", "&#x3D;", "`", "&#x60;"),
	entities("&quot;", "&#x27;", "=", "&#x3D;", "`", "&#x60;"),
	entities("&#34;", "&#39;", "+", "&#43;"),
	numbers("&#%d;"), numbers("&#x%x;"), numbers("&#x%X;"),
	url.QueryEscape, lowerHex(url.QueryEscape), url.PathEscape, lowerHex(url.PathEscape),
	percent("!~*'()"), lowerHex(percent("!~*'()")), // encodeURIComponent
	percent("!~*'();/?:@&=+$,#"), // encodeURI
	percent("~/"),                // urllib.parse.quote
	percent(""),
}

// Escaped returns a text and what programs make of it.
func Escaped(text string) []string {
	all := []string{text}
	for _, escape := range escapes {
		if t := escape(text); !slices.Contains(all, t) {
			all = append(all, t)
		}
	}
	return all
}

// escapeEach writes those characters that need it by a form of their number.
func escapeEach(need func(c byte) bool, form string) func(string) string {
	return func(text string) string {
		var b strings.Builder
		for i := range len(text) {
			if need(text[i]) {
				fmt.Fprintf(&b, form, text[i])
			} else {
				b.WriteByte(text[i])
			}
		}
		return b.String()
	}
}

// mark reports whether a program may escape c. Hardly one does those of names.
func mark(c byte) bool {
	name := 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9'
	return !name && strings.IndexByte("-_.", c) < 0
}

// jsonHex writes marks by their number, or all of them.
func jsonHex(marks, digits string, slash bool) func(string) string {
	hex := escapeEach(func(c byte) bool {
		return marks == "" && mark(c) || strings.IndexByte(marks, c) >= 0
	}, `\u`+digits)
	return func(text string) string {
		if marks == "" {
			return hex(text)
		}
		text = strings.ReplaceAll(text, `\`, `\\`)
		if strings.IndexByte(marks, '"') < 0 {
			text = strings.ReplaceAll(text, `"`, `\"`)
		}
		if slash {
			text = strings.ReplaceAll(text, `/`, `\/`)
		}
		return hex(text)
	}
}

func entities(quote, apostrophe string, more ...string) func(string) string {
	return strings.NewReplacer(append([]string{`&`, "&amp;", `<`, "&lt;", `>`, "&gt;",
		`"`, quote, `'`, apostrophe}, more...)...).Replace
}

func numbers(form string) func(string) string { return escapeEach(mark, form) }

func percent(kept string) func(string) string {
	return escapeEach(func(c byte) bool { return mark(c) && strings.IndexByte(kept, c) < 0 }, "%%%02X")
}

// lowerHex has digits of percent escapes in small letters.
func lowerHex(escape func(string) string) func(string) string {
	return func(text string) string {
		b := []byte(escape(text))
		for i := 0; i+2 < len(b); i++ {
			if b[i] == '%' {
				copy(b[i+1:i+3], strings.ToLower(string(b[i+1:i+3])))
			}
		}
		return string(b)
	}
}
