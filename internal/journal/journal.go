package journal

import (
	"bytes"
	"io"
	"log/slog"
)

// levels are slog's levels with their priorities of sd-daemon(3); a record has the highest that it
// reaches.
var levels = []struct {
	level  slog.Level
	prefix string
}{
	{slog.LevelError, "<3>"},
	{slog.LevelWarn, "<4>"},
	{slog.LevelInfo, "<6>"},
	{slog.LevelDebug, "<7>"},
}

// logLevel is the lowest level that is logged: log_level of the config, which a reload may change.
var logLevel slog.LevelVar

// Levels are the words of log_level.
func Levels() []string { return []string{"debug", "info", "warn", "error"} }

// SetLevel takes one of [Levels].
func SetLevel(word string) error {
	var l slog.Level
	if err := l.UnmarshalText([]byte(word)); err != nil {
		return err
	}
	logLevel.Set(l)
	return nil
}

// newJournalHandler writes lines for systemd's journal, which has a clock of its own and reads the
// priority off the front of the line.
func newJournalHandler(w io.Writer) slog.Handler {
	return slog.NewTextHandler(priorityWriter{w}, &slog.HandlerOptions{
		Level: &logLevel, ReplaceAttr: withoutClock,
	})
}

// withoutClock removes the time, so that the level comes first.
func withoutClock(groups []string, a slog.Attr) slog.Attr {
	if len(groups) == 0 && a.Key == slog.TimeKey && a.Value.Kind() == slog.KindTime {
		return slog.Attr{}
	}
	return a
}

// priorityWriter writes a line, whole, with its priority in place of the level at its front.
type priorityWriter struct{ w io.Writer }

func (p priorityWriter) Write(line []byte) (int, error) {
	level, rest, _ := bytes.Cut(line, []byte(" "))
	var l slog.Level
	if err := l.UnmarshalText(bytes.TrimPrefix(level, []byte(slog.LevelKey+"="))); err != nil {
		return 0, err
	}
	i := 0
	for i < len(levels)-1 && l < levels[i].level {
		i++
	}
	if _, err := p.w.Write(append([]byte(levels[i].prefix), rest...)); err != nil {
		return 0, err
	}
	return len(line), nil
}
