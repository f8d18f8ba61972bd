package layout

import (
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// onceMore is what test/vagrant/inside/again would run again of a log; "" is nothing.
func onceMore(log string) string {
	cmd := exec.Command("test/vagrant/inside/again")
	cmd.Stdin = strings.NewReader(log)
	out, _ := cmd.Output()
	return string(out)
}

// failure is what go test -v writes of tests that failed.
func failure(names ...string) string {
	var log strings.Builder
	for _, name := range names {
		log.WriteString("--- FAIL: " + name + " (0.01s)\n")
	}
	return log.String() + "FAIL\n"
}

// TestOnceMore: a few tests that failed are run once more; no attack, and nothing where more or
// something else failed (adrs/0095).
func TestOnceMore(t *testing.T) {
	const of = "FAIL\tx/y\t1s\n"
	for log, want := range map[string]string{
		failure("TestA"):                                     "^(TestA)$\n",
		failure("TestA", "TestB") + of:                       "x/y ^(TestA|TestB)$\n",
		failure("TestA", "TestB", "TestC") + of:              "x/y ^(TestA|TestB|TestC)$\n",
		failure("TestA", "TB", "TC", "TD", "TE", "TF", "TG"): "",
		failure("TestA") + "panic: oh\n" + of:                "",
		"WARNING: DATA RACE\n" + failure("TestA") + of:       "",
		failure("TestA") + of + "FAIL\tx/z [build failed]\n": "",
		of:       "",
		"PASS\n": "",
	} {
		expect.Equal(t, onceMore(log), want, "of %q it runs … again", log)
	}
	attacks := 0
	for _, name := range must.Get(filepath.Glob("test/roottest/attack_*_test.go"))(t) {
		for _, m := range regexp.MustCompile(`(?m)^func (Test\w+)`).FindAllStringSubmatch(page(t, name), -1) {
			attacks++
			expect.True(t, onceMore(failure(m[1])) == "", "%s: the attack %s would be run again", name, m[1])
		}
	}
	expect.True(t, attacks >= 20, "%d attacks were found", attacks)
}
