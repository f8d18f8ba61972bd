package unshare

import (
	"fmt"
	"slices"
	"testing"

	"github.com/chatd/chatd/test/expect"
)

// TestPlan: neighbouring paths share one layer, no layer holds an empty directory, mounts
// below a tree have layers of their own, and paths of Through have none.
func TestPlan(t *testing.T) {
	trees := Trees{
		Dir: "/run/chatd/stage", Empty: []string{"/var/lib/chatd/empty", "/run/chatd/stage/empty"}, Lowers: []string{"/var/lib/chatd"},
		Mounts: []string{"/", "/run", "/dev", "/srv/data", "/srv/data/deep", "/etc/hosts"}, Through: []string{"/srv/data/open", "/home/x", "/tmp"},
	}
	for _, c := range []struct {
		sources []source
		want    []string
	}{
		{[]source{{"/usr", true}}, []string{"/usr < /usr"}},
		{[]source{{"/usr", true}, {"/usr/local", true}}, []string{"/usr < /usr"}},
		{[]source{{"/etc/ssl/certs", true}, {"/etc/ld.so.cache", false}}, []string{"/etc/ld.so.cache < /etc", "/etc/ssl/certs < /etc"}},
		{[]source{{"/dev/null", false}}, []string{"/dev/null < /dev"}},
		{[]source{{"/var/lib/chatd/profiles/p/bin", true}}, []string{"/var/lib/chatd/profiles/p/bin < /var/lib/chatd"}},
		{[]source{{"/var/cache/x", true}}, []string{"/var/cache/x < /var"}},
		{[]source{{"/srv/data", true}, {"/srv/data/deep", true}}, []string{"/srv/data < /srv/data", "/srv/data/deep < /srv/data/deep", "/srv/data/open < "}},
		{[]source{{"/etc/hosts", false}}, []string{"/etc/hosts < "}},
		{[]source{{"/run/other", true}}, []string{"/run/other < /run"}},
	} {
		var got []string
		for _, p := range trees.plan(c.sources) {
			got = append(got, fmt.Sprintf("%s < %s", p.path, p.lower))
		}
		expect.True(t, slices.Equal(got, c.want), "%v: got %q, want %q", c.sources, got, c.want)
	}
	if got := trees.below("/srv/data"); !slices.Equal(got, []string{"/srv/data/deep"}) {
		t.Errorf("mounts below /srv/data: %q", got)
	}
}
