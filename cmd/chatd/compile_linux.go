package main

import (
	"context"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/front"
	"github.com/chatd/chatd/landlock"
)

// Bounds of the config step: bytes of memory, and seconds of the processor's time.
const (
	compileData = 1 << 30
	compileCPU  = 20
)

// confineCompile gives up all but reading and writing of what is open, before a byte is read. Without
// Landlock (Linux before 5.13) the system call filter alone refuses paths.
func confineCompile() error {
	for resource, max := range map[int]uint64{unix.RLIMIT_DATA: compileData, unix.RLIMIT_CPU: compileCPU} {
		if err := unix.Setrlimit(resource, &unix.Rlimit{Cur: max, Max: max}); err != nil {
			return fmt.Errorf("cannot bound the config step: %w", err)
		}
	}
	_, err := landlock.Restrict(landlock.Rules{}, "getrlimit", "prlimit64", "uname")
	return err
}

func runFront(ctx context.Context) error { return front.Run(ctx, version) }
