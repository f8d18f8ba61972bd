//go:build !linux

// Command bridge demonstrates chatd, whose walls are made by the Linux kernel.
package main

import (
	"fmt"
	"os"
	"runtime"
)

func main() {
	fmt.Fprintf(os.Stderr, "demo: cannot run on %s: chatd's walls are made by the Linux kernel\n", runtime.GOOS)
	os.Exit(69)
}
