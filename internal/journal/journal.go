package journal

import (
	"context"
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

// prefixWriter writes one line, whole, with its priority in front.
type prefixWriter struct {
	w      io.Writer
	prefix string
}

func (p prefixWriter) Write(b []byte) (int, error) {
	n, err := p.w.Write(append([]byte(p.prefix), b...))
	return max(0, n-len(p.prefix)), err
}

// journalHandler writes lines for systemd's journal: it has a clock of its own, and
// reads the priority off the front of the line. There is one handler for each of
// levels, in their order.
type journalHandler []slog.Handler

func newJournalHandler(w io.Writer) journalHandler {
	var h journalHandler
	for _, l := range levels {
		h = append(h, slog.NewTextHandler(prefixWriter{w, l.prefix}, &slog.HandlerOptions{
			Level: &logLevel, ReplaceAttr: withoutClock,
		}))
	}
	return h
}

// withoutClock removes the time and the level, which the journal has itself.
func withoutClock(groups []string, a slog.Attr) slog.Attr {
	_, level := a.Value.Any().(slog.Level)
	clock := a.Value.Kind() == slog.KindTime
	if len(groups) == 0 && (a.Key == slog.TimeKey && clock || a.Key == slog.LevelKey && level) {
		return slog.Attr{}
	}
	return a
}

// Enabled is that of every handler in it.
func (h journalHandler) Enabled(ctx context.Context, l slog.Level) bool {
	return h[0].Enabled(ctx, l)
}

// Handle writes the record by the handler of its level.
func (h journalHandler) Handle(ctx context.Context, r slog.Record) error {
	i := 0
	for i < len(levels)-1 && r.Level < levels[i].level {
		i++
	}
	return h[i].Handle(ctx, r)
}

// WithAttrs gives every handler the attributes.
func (h journalHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return h.each(func(s slog.Handler) slog.Handler { return s.WithAttrs(attrs) })
}

// WithGroup gives every handler the group.
func (h journalHandler) WithGroup(name string) slog.Handler {
	return h.each(func(s slog.Handler) slog.Handler { return s.WithGroup(name) })
}

func (h journalHandler) each(f func(slog.Handler) slog.Handler) slog.Handler {
	var out journalHandler
	for _, s := range h {
		out = append(out, f(s))
	}
	return out
}
