package roottest

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// TestFlushIsMendedAtOnce: with the next reconcile an hour away, rules that
// somebody flushes come back all the same.
func TestFlushIsMendedAtOnce(t *testing.T) {
	opt := options(t)
	opt.Every = time.Hour
	open(t, opt)
	for _, flush := range [][]string{
		{"iptables", "-F"}, {"ip6tables", "-F"}, {"iptables", "-F", "CHATD"}, {"nft", "delete", "table", "inet", "chatd"},
	} {
		if out, err := exec.Command(flush[0], flush[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %v: %s", flush, err, out)
		}
		until(t, fmt.Sprintf("%v is mended", flush), func() bool { return walled(t) })
	}
}

// walled looks for what each of the flushes takes away.
func walled(t *testing.T) bool {
	t.Helper()
	for _, look := range []struct {
		argv []string
		want string
	}{
		{[]string{"iptables", "-S", "OUTPUT"}, "-j CHATD"}, {[]string{"ip6tables", "-S", "OUTPUT"}, "-j CHATD"},
		{[]string{"iptables", "-S", "CHATD"}, "-A CHATD"}, {[]string{"nft", "list", "tables"}, "table inet chatd"},
	} {
		out, err := exec.Command(look.argv[0], look.argv[1:]...).CombinedOutput()
		if err != nil && look.argv[0] != "iptables" {
			t.Fatalf("%v: %v: %s", look.argv, err, out)
		}
		if !strings.Contains(string(out), look.want) {
			return false
		}
	}
	return true
}
