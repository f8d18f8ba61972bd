package files

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/chatd/chatd/internal/filewire"
	"github.com/chatd/chatd/test/must"
)

// BenchmarkRatio measures the tools beside os.ReadFile and os.WriteFile, in turns
// in the same run: "x-plain" is how much longer a call takes. The plain write of
// "write" does not sync, that of "write-synced" does.
func BenchmarkRatio(b *testing.B) {
	for _, size := range []int{4 << 10, 1 << 20, 64 << 20} {
		content := bytes.Repeat([]byte("0123456789abcdef"), size/16)
		w := newWorld(b, func(o *filewire.Options) { o.Check = func(filewire.Op, string) *filewire.Denial { return nil } })
		mkdir(b, w.home+"/a/b")
		put1(b, w.home+"/a/b/plain", string(content))
		put1(b, w.home+"/a/b/tool", string(content))
		plain, name := w.home+"/a/b/plain", "a/b/tool"
		reading := func() error {
			_, err := w.ReadFile(filewire.ReadFile{Path: name, Stream: true}, func(filewire.Answer) io.Writer { return io.Discard })
			return err
		}
		writing := func() error {
			_, err := w.WriteFile(filewire.WriteFile{Path: name, Stream: true}, bytes.NewReader(content))
			return err
		}
		for _, c := range []struct {
			what       string
			tool, rest func() error
		}{
			{"read", reading, func() error { _, err := os.ReadFile(plain); return err }},
			{"write", writing, func() error { return os.WriteFile(plain, content, 0o600) }},
			{"write-synced", writing, func() error { return plainWrite(plain, os.O_CREATE|os.O_TRUNC, content) }},
			{"append", func() error { os.Truncate(w.home+"/a/b/tool", 0); _, err := w.append(name, "one line\n"); return err },
				func() error { return plainWrite(plain, os.O_APPEND, []byte("one line\n")) }},
		} {
			if c.what == "append" && size > 4<<10 {
				continue
			}
			b.Run(fmt.Sprintf("%s/%dKiB", c.what, size>>10), func(b *testing.B) { ratio(b, c.tool, c.rest) })
		}
	}
}

// plainWrite writes and syncs.
func plainWrite(name string, flags int, content []byte) error {
	f, err := os.OpenFile(name, flags|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	return errors.Join(err, f.Sync(), f.Close())
}

// ratio reports the medians of both and how they compare.
func ratio(b *testing.B, tool, plain func() error) {
	var took [2][]time.Duration
	for b.Loop() {
		for i, f := range []func() error{plain, tool} {
			begun := time.Now()
			must.Do(b, f())
			took[i] = append(took[i], time.Since(begun))
		}
	}
	median := func(d []time.Duration) float64 {
		slices.Sort(d)
		return float64(d[len(d)/2].Nanoseconds())
	}
	b.ReportMetric(median(took[0])/1000, "plain-µs")
	b.ReportMetric(median(took[1])/1000, "tool-µs")
	b.ReportMetric(median(took[1])/median(took[0]), "x-plain")
}
