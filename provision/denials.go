package provision

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"time"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/quota"
	"github.com/chatd/chatd/shims"
	"github.com/chatd/chatd/sys"
)

// The shims of a session report denials through a fifo, one line of JSON for each. The chat can
// suppress or forge them. A fifo carries no descriptors and holds at most 64 KiB, and each
// session has its own, which identifies the chat.

// heardBurst lines are audited immediately, and one more every heardEvery. Meanwhile chatd reads
// no further, so that a chat cannot make it work or write without bound.
const (
	heardBurst = 20
	heardEvery = 5 * time.Second
)

func (m *Manager) denialFIFO(id chat.ID) string { return filepath.Join(m.sessionDir(id), "denials") }

// hear reads the denials of a session's shims until the session ends. A session of an older
// chatd may have no fifo, and then no denial is read.
func (m *Manager) hear(s *session) {
	s.deafen = func() {}
	f, err := sys.OpenFIFO(m.denialFIFO(s.id))
	if err != nil {
		m.log.Debug("not listening to the shims", "chat", s.id, "why", err)
		return
	}
	ctx, deafen := context.WithCancel(context.Background())
	context.AfterFunc(ctx, func() { _ = f.Close() })
	s.deafen = deafen
	m.done.Go(func() { m.listen(ctx, s.id, f) })
}

// listen audits lines as they come. It joins a line that two reads divide.
func (m *Manager) listen(ctx context.Context, id chat.ID, f *os.File) {
	buf := make([]byte, shims.MaxShimDenial)
	lines := quota.NewAllowance(heardBurst, heardEvery, time.Now)
	for have := 0; ; {
		n, err := f.Read(buf[have:])
		if err != nil {
			return
		}
		for have += n; have > 0; {
			line, rest, whole := bytes.Cut(buf[:have], []byte("\n"))
			if !whole && have < len(buf) {
				break
			}
			if !lines.Wait(ctx) {
				return
			}
			m.heard(id, line)
			have = copy(buf, rest)
		}
	}
}

// heard audits one line.
func (m *Manager) heard(id chat.ID, line []byte) {
	rec, err := m.store.Get(id)
	if err != nil {
		return // reaped meanwhile
	}
	detail := map[string]string{"by": "the chat's word"}
	d, err := shims.ReadShimDenial(line)
	if err != nil {
		detail["unreadable"] = auditText(string(line))
	} else {
		detail["program"], detail["argv"], detail["rule"] = auditText(d.Program), auditText(d.Argv), auditText(d.Rule)
	}
	if err := m.audit(context.Background(), rec, "shim", "denied", detail); err != nil {
		m.log.Error("cannot audit what a shim denied", "chat", id, "error", err)
	}
}
