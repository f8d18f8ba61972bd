package shims

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// attackMain runs inside a session: it tries one thing and prints how the
// kernel answered.
func attackMain(args []string) int {
	if args[0] == "writable" {
		return printWritable()
	}
	err := attack(args[0], args[1:])
	var exit *exec.ExitError
	var errno syscall.Errno
	switch {
	case err == nil:
		fmt.Println("ok")
	case errors.As(err, &exit):
		fmt.Println(exit.Sys().(syscall.WaitStatus).Signal())
	case errors.As(err, &errno):
		fmt.Println(unix.ErrnoName(errno))
	default:
		fmt.Println(err)
	}
	return 0
}

func attack(do string, args []string) error {
	switch do {
	case "stat":
		_, err := os.Lstat(args[0])
		return err
	case "read":
		_, err := os.ReadFile(args[0])
		return err
	case "list":
		_, err := os.ReadDir(args[0])
		return err
	case "write":
		return os.WriteFile(args[0], []byte("x"), 0o600)
	case "whiteout":
		return unix.Mknod(args[0], unix.S_IFCHR|0o600, 0)
	case "kill":
		pid, err := strconv.Atoi(args[0])
		return errors.Join(err, unix.Kill(pid, 0))
	case "abstract":
		return connectAbstract(args[0])
	case "foreign":
		return runForeign(args[0])
	case "chmod":
		return os.Chmod(args[0], 0o666)
	case "syscall":
		return rawCall(args)
	}
	return fmt.Errorf("no such attack %q", do)
}

// rawCall makes a system call with numbers, so that every bit is the test's.
func rawCall(args []string) error {
	var n [7]uintptr
	for i, a := range args {
		v, err := strconv.ParseUint(a, 0, 64)
		if err != nil {
			return err
		}
		n[i] = uintptr(v)
	}
	if _, _, e := unix.RawSyscall6(n[0], n[1], n[2], n[3], n[4], n[5], n[6]); e != 0 {
		return e
	}
	return nil
}

// runForeign runs a program for amd64 whose only act is exit(0) by int 0x80,
// the entry of 32-bit calls.
func runForeign(dir string) error {
	code := []byte{0xb8, 1, 0, 0, 0, 0x31, 0xdb, 0xcd, 0x80, 0x0f, 0x0b} // mov eax,1; xor ebx,ebx; int 0x80; ud2
	const base, head = 0x400000, 120
	elf := make([]byte, head, head+len(code))
	copy(elf, "\x7fELF\x02\x01\x01")
	elf[16], elf[18], elf[20] = 2, 62, 1                           // executable, x86-64, version
	elf[24], elf[25], elf[26] = head, 0, base>>16                  // entry
	elf[32], elf[52], elf[54], elf[56] = 64, 64, 56, 1             // one program header at 64
	elf[64], elf[68] = 1, 5                                        // load, r-x
	elf[82], elf[90], elf[113] = base>>16, base>>16, 0x10          // addresses, alignment
	elf[96], elf[104] = byte(head+len(code)), byte(head+len(code)) // sizes
	path := filepath.Join(dir, "foreign")
	if err := os.WriteFile(path, append(elf, code...), 0o755); err != nil {
		return err
	}
	return exec.Command(path).Run()
}

// printWritable lists the topmost places that access(2) calls writable.
func printWritable() int {
	err := filepath.WalkDir("/", func(p string, d fs.DirEntry, err error) error {
		if p == "/proc" {
			return filepath.SkipDir
		}
		if err != nil || d.Type()&fs.ModeSymlink != 0 {
			return nil
		}
		if unix.Access(p, unix.W_OK) != nil {
			return nil
		}
		fmt.Println(p)
		if d.IsDir() {
			return filepath.SkipDir
		}
		return nil
	})
	if err != nil {
		fmt.Println(strings.ToUpper(err.Error()))
		return 1
	}
	return 0
}
