package guard

import (
	"os"
	"strings"
	"testing"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// corpus reads the lines of a file of testdata, with its columns.
func corpus(t testing.TB, name string) (lines [][]string) {
	t.Helper()
	text := must.Get(os.ReadFile("testdata/" + name))(t)
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSuffix(line, "\n"); line != "" && line[0] != '#' {
			lines = append(lines, strings.Split(strings.ReplaceAll(line, "␤", "\n"), "\t"))
		}
	}
	return lines
}

// TestHarmless: the default guard lets everyday commands run, ours and those that others published.
func TestHarmless(t *testing.T) {
	g := mustNew(t, chat.DefaultGuard())
	for _, name := range []string{"harmless.txt", "published.txt"} {
		lines := corpus(t, name)
		expect.True(t, len(lines) >= 200, "%s: %d commands, want at least 200", name, len(lines))
		for _, l := range lines {
			v, err := g.Command(l[1], home)
			expect.True(t, !v.Denied && err == nil, "%s: %+v, %v", l[1], v, err)
		}
	}
}

// TestBypasses: which commands of the corpus PicoClaw's preset sees, in a workspace, is
// written beside them: a guard that reads text does not see all of them.
func TestBypasses(t *testing.T) {
	g := mustNew(t, chat.Guard{Preset: chat.GuardPicoClaw, EnableDenyPatterns: true, RestrictToWorkspace: true})
	fill := strings.NewReplacer("{secret}", "/srv/outside/secret", "{target}", "/srv/outside/target", "{note}", "/srv/homes/0123456789abcdef/note", "{pid}", "77", "{port}", "8000")
	seen, lines := 0, corpus(t, "bypasses.txt")
	expect.True(t, len(lines) >= 150, "%d commands, want at least 150", len(lines))
	for _, l := range lines {
		v, err := g.Command(fill.Replace(l[2]), home)
		expect.True(t, err == nil, "%s: %v", l[2], err)
		got := map[bool]string{true: "seen", false: "missed"}[v.Denied]
		expect.True(t, got == l[1], "%s: %s by %q, the corpus says %s", l[2], got, v.Rule, l[1])
		if v.Denied {
			seen++
		}
	}
	t.Logf("%d of %d seen", seen, len(lines))
}
