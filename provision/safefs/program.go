package safefs

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/sys"
)

// InstallProgram puts a copy of a program in place in one step, if only root could have written
// the program. Living sessions keep the file that they were started with.
func InstallProgram(from, to string) error {
	f, err := os.Open(from)
	if err != nil {
		return fmt.Errorf("cannot install %s: %w", from, err)
	}
	defer f.Close()
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return fmt.Errorf("cannot install %s: %w", from, err)
	}
	if err := checkOwned(from, st); err != nil {
		return err
	}
	content, err := io.ReadAll(f)
	if err != nil {
		return fmt.Errorf("cannot install %s: %w", from, err)
	}
	have, err := os.ReadFile(to)
	if err == nil && bytes.Equal(have, content) && CheckProgram(to) == nil {
		return nil
	}
	if err := ReplaceFile(to, content, 0o755); err != nil {
		return fmt.Errorf("cannot install %s: %w", to, err)
	}
	return nil
}

// CheckProgram refuses a program, for root to run, that a user besides root can write to.
func CheckProgram(file string) error {
	var st unix.Stat_t
	if err := unix.Stat(file, &st); err != nil {
		return cannotUse(file, err)
	}
	return checkOwned(file, st)
}

// checkOwned is CheckProgram for a file whose status is known.
func checkOwned(file string, st unix.Stat_t) error {
	if st.Mode&unix.S_IFMT != unix.S_IFREG || st.Mode&0o111 == 0 {
		return cannotUse(file, errors.New("want a file that may be executed"))
	}
	if who := sys.WritersOf(st); who != "" {
		err := fmt.Errorf("%s may write to it; want a file that only root may write to", who)
		return cannotUse(file, err)
	}
	return nil
}

func cannotUse(file string, err error) error {
	err = fmt.Errorf("%w: %w", err, chat.ErrUnsupported)
	return fmt.Errorf("cannot use the program %s: %w", chat.Quote(file), err)
}
