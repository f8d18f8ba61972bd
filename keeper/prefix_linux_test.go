package keeper

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestSwappedPrefix: a pattern goes through a link of the chat's, and the chat makes that
// link lead elsewhere and back for 10 s while its session is looked at again and again.
// What the link led to when the rules came stays denied, under each of its names; what
// it leads to now and then, and what a path that is read in between would name, stay as
// they are.
func TestSwappedPrefix(t *testing.T) {
	s := newInside(t, false, false)
	at := func(name string) string { return filepath.Join(s.home, name) }
	for _, name := range []string{"a/in/secret", "b/in/free", "b/in/secret", "c/in/secret"} {
		makeFree(t, at(name))
	}
	must(t, os.Symlink("a", at("link")))
	must(t, os.Symlink("b", at("other")))
	for _, name := range []string{"link", "other"} {
		must(t, os.Lchown(at(name), testUID, testUID))
	}
	_, err := s.hold("access: {useDefaults: false, deny: [~/link/in/secret, '**/again/**']}")
	must(t, err)
	stop, swapped := make(chan bool), make(chan int)
	go func() {
		for n := 0; ; n++ {
			select {
			case <-stop:
				swapped <- n
				return
			default:
				_ = unix.Renameat2(unix.AT_FDCWD, at("link"), unix.AT_FDCWD, at("other"), unix.RENAME_EXCHANGE)
			}
		}
	}()
	looks := 0
	for began := time.Now(); time.Since(began) < 10*time.Second; looks++ {
		makeFree(t, at(fmt.Sprintf("again/%d", looks))) // the keeper looks by itself, too
		must(t, s.k.raise(s.k.named(s.order.Chat), nil))
		got := s.try(t, []string{at("a/in/secret"), at("b/in/free"), at("b/in/secret"), at("c/in/secret")})
		if got[0] != (tried{}) {
			t.Fatalf("look %d: what was denied is open: %+v", looks, got[0])
		}
		if free := (tried{true, true, true}); got[1] != free || got[2] != free || got[3] != free {
			t.Fatalf("look %d: what no rule is about is denied: %+v", looks, got[1:])
		}
	}
	close(stop)
	if n := <-swapped; n < looks || looks == 0 {
		t.Errorf("%d swaps, %d looks", n, looks)
	}
}
