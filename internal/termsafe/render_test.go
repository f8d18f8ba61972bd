package termsafe

import (
	"github.com/chatd/chatd/test/expect"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestRender(t *testing.T) {
	for in, want := range map[string]string{
		"a\r\nb  \r\n\r\n":                          "a\nb",
		"10%\r50%\r100%\r\ndone":                    "100%\ndone",
		"ab\b\bX\x1b[Cc":                            "Xbc",
		"one\r\ntwo\r\n\x1b[2A\x1b[2KONE\r\n\x1b[K": "ONE",
		"one\r\ntwo\r\n\x1b[2A\x1b[JONE":            "ONE",
		"1\r\n2\r\n3\r\n4\r\n5\r\n6":                "1\n2\n3\n4\n5\n6",
		"abcdefghijklm":                             "abcdefghijklm",
		"abcdefghijklmnopqrstuvwxyz\r\nnext":        "abcdefghijklmnopqrstuvwxyz\nnext",
		"abcdefghij\r\nnext":                        "abcdefghij\nnext",
		"हिन्दी ที่นี่ தமிழ் e\u0301 1\ufe0f\u20e3":            "हिन्दी ที่นี่ தமிழ் e\u0301 1\ufe0f\u20e3",
		"שָׁלוֹם \u200fعربيّ":                                  "שָׁלוֹם \u200fعربيّ",
		"👩\u200d💻🏽🏴\U000E0067\U000E007F":                       "👩\u200d💻🏽🏴\U000E0067\U000E007F",
		"漢字\x1b[1;3HX\x1b[1;2HY":                               " YX",
		"漢字\x1b[1;2H字":                                         " 字",
		"abcdefghi漢":                                           "abcdefghi漢",
		"\u0301a":                                              "\u0301a",
		"a\tb":                                                 "a       b",
		"\x1b[3;4Hx\x1b[1;1Hy":                                 "y\n\n   x",
		"abc\x1b[1;2H\x1b[@X\x1b[P":                            "aXc",
		"abc\x1b[2D\x1b[1Xd":                                   "adc",
		"x\x1b[1;2r\x1b[2;1Hy\nz\x1b[r":                        "x\ny\n z",
		"1\r\n2\r\n3\x1b[1;1H\x1b[M":                           "2\n3",
		"1\r\n2\x1b[1;1H\x1b[Lnew":                             "new\n1\n2",
		"1\r\n2\x1b[1;1H\x1bMtop":                              "top\n1\n2",
		"main\x1b[?1049h\x1b[Hthe screen":                      "the screen",
		"main\x1b[?1049hfull\x1b[?1049l back":                  "main back",
		"\x1b]0;title\a\x1b[31mred\x1b[m\x1bPq\x1b\\ e\u0301é": "red e\u0301é",
		"\x1b[999Cx\x1b[999By":                                 "         x\n\n\n         y",
		"\x1b7a\x1b8b\x1b[sc\x1b[ud":                           "bd",
		"":                                                     "",
	} {
		got := Render([]byte(in), 4, 10)
		expect.True(t, got == want, "%q is %q, want %q", in, got, want)
	}
	many := strings.Repeat("\x1b[999Cx\r\n", 1<<17)
	got := Render([]byte(many), 40, 1000)
	expect.True(t, len(got) <= maxRendered && strings.HasSuffix(got, " x"), "%d bytes", len(got))
}

// FuzzRender: whatever comes, it is text of bounded size, and the same again.
func FuzzRender(f *testing.F) {
	for _, s := range []string{"a\r\n\x1b[2J\x1b[3;1Hb", "\x1b[?1049h\x1b[5L\x1b[2;3r\x1b[9S\x1bM", "\x1b[99T\x1b[2M\x1b[4P\x1b[8@\x1b[1J\x1b[1K"} {
		f.Add([]byte(s), uint8(4), uint8(10))
	}
	f.Fuzz(func(t *testing.T, in []byte, rows, cols uint8) {
		got := Render(in, int(rows), int(cols))
		if len(got) > maxRendered+1 || !utf8.ValidString(got) || (&Writer{level: Plain, formats: true}).text(got) != got {
			t.Fatalf("%q is %q", in, got)
		}
	})
}
