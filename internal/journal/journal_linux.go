package journal

import (
	"fmt"
	"io"
	"log/slog"
	"os"

	"golang.org/x/sys/unix"
)

// Priority is the prefix of a line that says why a program ended; it is empty unless w leads to the
// journal.
func Priority(w io.Writer) string {
	if f, ok := w.(*os.File); ok && isJournal(f) {
		return "<3>"
	}
	return ""
}

// New returns a logger to f, in the format of the journal or for people.
func New(f *os.File) *slog.Logger {
	if isJournal(f) {
		return slog.New(newJournalHandler(f))
	}
	return slog.New(slog.NewTextHandler(f, &slog.HandlerOptions{Level: &logLevel}))
}

// isJournal reports whether f leads to the journal: JOURNAL_STREAM has the device
// and inode of what systemd connected (systemd.exec(5)). The variable alone says
// nothing, for standard error may have been led elsewhere since.
func isJournal(f *os.File) bool {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return false
	}
	return os.Getenv("JOURNAL_STREAM") == fmt.Sprintf("%d:%d", st.Dev, st.Ino)
}
