package filerules

import (
	"runtime"
	"strings"
	"testing"
)

// TestSize: Size matches the memory that a ruleset holds, within a factor of two.
func TestSize(t *testing.T) {
	long := "access:\n  deny:\n" + strings.Repeat("    - '~/{a,b,c,d}"+strings.Repeat("/x*", 300)+"'\n", 20)
	inert := "access:\n  rules:\n" + strings.Repeat("    - {allow: '~/{a,b,c}/x*'}\n", 1000)
	texts := map[string]string{"long": long, "inert": inert, "default": ""}
	for _, kind := range []string{"mixed", "subtrees", "literals", "names", "suffixes", "regexes", "same"} {
		texts[kind] = rulesOf(kind, 1000)
	}
	for kind, text := range texts {
		p := mustLoad(t, text)
		const copies = 10
		kept := make([]*Ruleset, copies)
		before := heap()
		for i := range kept {
			rs, err := p.For(Scope{Home: "/srv/chatd/homes/00112233445566aa"})
			if err != nil {
				t.Fatal(err)
			}
			kept[i] = rs
		}
		real, said := (heap()-before)/copies, kept[0].Size()
		runtime.KeepAlive(kept)
		if t.Logf("%s: %d bytes, says %d", kind, real, said); said > 2*real || said < real/2 {
			t.Errorf("%s: it holds %d bytes and says %d", kind, real, said)
		}
	}
}

// heap is the size of live objects in bytes.
func heap() int {
	runtime.GC()
	runtime.GC() // sweeps what the first one found
	var s runtime.MemStats
	runtime.ReadMemStats(&s)
	return int(s.HeapAlloc)
}
