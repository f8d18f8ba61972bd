package enforce

import (
	"fmt"
	"path/filepath"
	"testing"
)

// BenchmarkLook is a look at a session in which nothing has changed: what a place that is denied
// costs must not grow with how many there are. Exceptions are in it, too.
func BenchmarkLook(b *testing.B) {
	for _, n := range []int{500, 4000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			s := newInside(b, false, false)
			for i := range n {
				makeFree(b, filepath.Join(s.home, "d", fmt.Sprint(i), ".env"))
				if i%10 == 0 {
					makeFree(b, filepath.Join(s.home, "x", fmt.Sprint(i), "pub"))
				}
			}
			_, err := s.hold("access: {useDefaults: false, mode: first-match, rules: [{allow: '**/pub'}, {deny: ~/x/**}, {deny: '**/.env'}]}")
			must(b, err)
			k := s.k.named(s.order.Chat)
			for b.Loop() {
				must(b, s.k.apply(k, nil))
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(len(k.masks)), "ns/place")
		})
	}
}
