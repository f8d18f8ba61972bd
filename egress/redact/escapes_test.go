package redact

import (
	"bytes"
	"encoding/json"
	"fmt"
	"html"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// TestEscaped: a value is known in what servers make of it in JSON, HTML and URLs.
func TestEscaped(t *testing.T) {
	const v = `ab/c+d=e&f<g>h"i'j\k`
	marshalled := must.Get(json.Marshal(v))(t)
	var plain bytes.Buffer
	e := json.NewEncoder(&plain)
	e.SetEscapeHTML(false)
	must.Do(t, e.Encode(v))
	texts := Escaped(v)
	for of, want := range map[string]string{
		"itself":                v,
		"json.Marshal":          strings.Trim(string(marshalled), `"`),
		"JSON":                  plain.String()[1 : plain.Len()-2],
		"PHP's json_encode":     `ab\/c+d=e&f<g>h\"i'j\\k`,
		"with JSON_HEX_*":       `ab\/c+d=e\u0026f\u003Cg\u003Eh\u0022i\u0027j\\k`,
		".NET's JsonSerializer": `ab/c\u002Bd=e\u0026f\u003Cg\u003Eh\u0022i\u0027j\\k`,
		"every mark": `ab\u002fc\u002bd\u003de\u0026f\u003cg\u003eh\u0022i` +
			`\u0027j\u005ck`,
		"html.EscapeString":      html.EscapeString(v),
		"Python's html.escape":   `ab/c+d=e&amp;f&lt;g&gt;h&quot;i&#x27;j\k`,
		"PHP's htmlspecialchars": `ab/c+d=e&amp;f&lt;g&gt;h&quot;i&#039;j\k`,
		"Mustache":               `ab&#x2F;c+d&#x3D;e&amp;f&lt;g&gt;h&quot;i&#39;j\k`,
		"html/template":          `ab/c&#43;d=e&amp;f&lt;g&gt;h&#34;i&#39;j\k`,
		"url.QueryEscape":        url.QueryEscape(v),
		"in small letters":       `ab%2fc%2bd%3de%26f%3cg%3eh%22i%27j%5ck`,
		"encodeURIComponent":     `ab%2Fc%2Bd%3De%26f%3Cg%3Eh%22i'j%5Ck`,
		"encodeURI":              `ab/c+d=e&f%3Cg%3Eh%22i'j%5Ck`,
		"urllib's quote":         `ab/c%2Bd%3De%26f%3Cg%3Eh%22i%27j%5Ck`,
		"numbers of HTML":        `ab&#47;c&#43;d&#61;e&#38;f&#60;g&#62;h&#34;i&#39;j&#92;k`,
	} {
		expect.True(t, slices.Contains(texts, want), "%s: %s is not known", of, want)
	}
	got := Escaped("sk-proj-0123_4567")
	expect.True(t, len(got) == 1, "a value without marks: %s", fmt.Sprint(got))
}
