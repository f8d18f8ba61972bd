package layout

import (
	"encoding/xml"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

func page(t *testing.T, name string) string {
	t.Helper()
	return string(read(t, name))
}

// TestEveryFolderIsOnTheMap: a reader finds each package in ARCHITECTURE.md.
func TestEveryFolderIsOnTheMap(t *testing.T) {
	for _, p := range packages(t) {
		dir := folder(p.ImportPath)
		word := regexp.MustCompile("[`/]" + regexp.QuoteMeta(filepath.Base(dir)) + "`")
		expect.True(t, word.MatchString(page(t, "ARCHITECTURE.md")),
			"ARCHITECTURE.md does not name %s", dir)
	}
}

// TestReadme: the first page is short, and has the one picture.
func TestReadme(t *testing.T) {
	text := page(t, "README.md")
	if n := strings.Count(text, "\n"); n > 89 {
		t.Errorf("README.md has %d lines, want at most 89: what is for few goes to HACKING.md", n)
	}
	expect.Equal(t, strings.Count(text, "](processes.svg)"), 1, "README.md shows processes.svg … times")
	for _, commissioned := range []string{
		"coreos/go-systemd", "containerd/cgroups", "coreos/go-iptables", "moby/sys/user",
		"landlock-lsm/go-landlock", "urfave/cli",
	} {
		expect.True(t, strings.Contains(text, commissioned),
			"README.md does not say what %s is for", commissioned)
	}
	expect.Is(t, xml.Unmarshal(read(t, "processes.svg"), new(struct{})), nil, "processes.svg is no XML")
}

// pages are the names of all pages.
func pages(t *testing.T) []string {
	t.Helper()
	var pages []string
	for _, pattern := range []string{"*.md", "*/*.md", "*/*/*.md", "*/*/*/*.md"} {
		pages = append(pages, must.Get(filepath.Glob(pattern))(t)...)
	}
	return pages
}

// pageLink is a link to a file of the repository; what follows # is not looked at.
var pageLink = regexp.MustCompile(`\]\(([^)#:\s]+)(#[^)\s]*)?\)`)

// TestLinks: each link of a page to a file of the repository leads to one.
func TestLinks(t *testing.T) {
	links := 0
	for _, name := range pages(t) {
		for _, link := range pageLink.FindAllStringSubmatch(page(t, name), -1) {
			if _, err := os.Stat(filepath.Join(filepath.Dir(name), link[1])); err != nil {
				t.Errorf("%s links %s: %v", name, link[1], err)
			}
			links++
		}
	}
	expect.True(t, links >= 100,
		"%d links were found, want at least 100: the test looks in the wrong place", links)
}

// TestDecisionsAreListed: adrs/README.md has each decision once, with the title of its page.
func TestDecisionsAreListed(t *testing.T) {
	files := must.Get(filepath.Glob("adrs/[0-9]*.md"))(t)
	list := page(t, "adrs/README.md")
	for _, name := range files {
		expect.True(t, strings.Count(list, "]("+filepath.Base(name)+")") == 1,
			"adrs/README.md does not list %s once", name)
	}
	for _, link := range regexp.MustCompile(`\]\((\d{4}-[^)]*)\)`).FindAllStringSubmatch(list, -1) {
		if !slices.Contains(files, "adrs/"+link[1]) {
			t.Errorf("adrs/README.md lists %s, which is not there", link[1])
		}
	}
}
