package printer

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/chatd/chatd/chat"
)

// Archives is a line for each archive.
func Archives(all []chat.Archive, now time.Time) string {
	head := []string{"NAME", "EXTERNAL-ID", "OWNER", "ARCHIVED", "SIZE", "EXPIRES", "ENCRYPTED"}
	return list(head, all, func(a chat.Archive) []string {
		return []string{string(a.Name), cut(a.ExternalID, wordWidth), a.Owner,
			age(now.Sub(a.ArchivedAt)) + " ago", size(uint64(a.Size)), expiry(a, now),
			map[bool]string{true: "yes", false: "no"}[a.Encrypted]}
	})
}

func expiry(a chat.Archive, now time.Time) string {
	if a.ExpiresAt == nil {
		return "never"
	}
	return "in " + age(a.ExpiresAt.Sub(now))
}

// Archived is the archive that was made of a chat.
func Archived(a chat.Archive, now time.Time) string {
	became := "reaped"
	switch {
	case a.Snapshot:
		became = "kept, awake"
	case a.Kept:
		became = "kept, asleep"
	}
	file := size(uint64(a.Size))
	if a.Encrypted {
		file += ", encrypted"
	}
	if a.Sent {
		file += ", sent to the operator's command"
	}
	rows := [][]string{
		{"archive", string(a.Name)},
		{"chat", string(a.Chat) + " " + became},
		{"home", amount(a.Entries, a.Bytes)},
		{"size", file},
		{"expires", expiry(a, now)},
	}
	if a.Slept != "" {
		rows = append(rows, []string{"no snapshot", a.Slept})
	}
	for _, name := range a.LeftNames {
		rows = append(rows, []string{"left out", name})
	}
	if more := a.Left - int64(len(a.LeftNames)); more > 0 {
		rows = append(rows, []string{"left out", grouped(more) + " more"})
	}
	return table(rows)
}

// amount is that of a home.
func amount(entries, bytes int64) string {
	return grouped(entries) + " files, " + size(uint64(bytes))
}

// grouped writes a number with commas between its thousands.
func grouped(n int64) string {
	s := strconv.FormatInt(n, 10)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// Verified is what a check of an archive found.
func Verified(check chat.ArchiveCheck) string {
	return lines(string(check.Name) + " is whole: " + size(uint64(check.Size)) + " were read")
}

// archiveWords is how far an archive or unarchive is.
func archiveWords(p chat.ArchiveProgress) string {
	return p.Doing + ": " + amount(p.Entries, p.Bytes)
}

// ArchiveProgress shows on a terminal how far an archive or unarchive is, until the returned func
// is called. It asks each second, and shows nothing before the first. Plain means a line for what
// is begun, without movement.
func ArchiveProgress(
	w io.Writer, what string, plain bool, ask func() *chat.ArchiveProgress,
) (done func()) {
	if !IsTerminal(w) {
		return func() {}
	}
	shown := ""
	return meanwhile(time.Second, func() { shown = showProgress(w, what, plain, shown, ask()) }, func() {
		if shown != "" && !plain {
			fmt.Fprint(w, "\r\x1b[K")
		}
	})
}

// showProgress replaces what is shown, and returns what is.
func showProgress(
	w io.Writer, what string, plain bool, shown string, p *chat.ArchiveProgress,
) string {
	words := what + " …"
	switch {
	case p != nil && plain:
		words = p.Doing + " …"
	case p != nil:
		words = archiveWords(*p)
	}
	switch words = Cell(words); {
	case words == shown:
	case plain:
		fmt.Fprintln(w, words)
	default:
		fmt.Fprint(w, "\r\x1b[K"+words)
	}
	return words
}

// Progress shows on a terminal that something is under way, until the returned
// func is called. Plain means a line without movement.
func Progress(w io.Writer, what string, plain bool) (done func()) {
	if !IsTerminal(w) {
		return func() {}
	}
	if plain {
		fmt.Fprintf(w, "%s …\n", what)
		return func() {}
	}
	i, begin := 0, time.Now()
	return meanwhile(100*time.Millisecond, func() {
		fmt.Fprintf(w, "\r%c %s %s", `|/-\`[i%4], what, time.Since(begin).Truncate(time.Second))
		i++
	}, func() { fmt.Fprint(w, "\r\x1b[K") })
}

// meanwhile calls act at intervals until the returned function is called, and then end.
func meanwhile(interval time.Duration, act, end func()) (done func()) {
	ctx, stop := context.WithCancel(context.Background())
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		chat.Every(ctx, interval, act)
		end()
	}()
	return func() { stop(); <-stopped }
}
