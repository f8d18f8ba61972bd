package provision

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"strconv"
	"time"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/files"
	"github.com/chatd/chatd/shims"
	"github.com/chatd/chatd/state"
	"github.com/chatd/chatd/verdict"
)

// ReadFile is read_file in the chat: the content goes to the writer that begin returns. The
// chat may be asleep, and is not woken.
func (m *Manager) ReadFile(ctx context.Context, id chat.ID, a files.ReadFile, begin files.Begin) (files.Answer, error) {
	limit := int64(files.MaxPage)
	if a.Stream {
		limit = m.fileMax()
	}
	x := files.Exchange{Begin: m.boundedBegin(a, begin), Limit: limit}
	return m.fileTool(ctx, id, fileCall{tool: files.ReadFileTool, op: files.Read, path: a.Path, args: a, stream: a.Stream, Exchange: x})
}

// WriteFile is write_file in the chat; the content is in a or comes from body. body may be read
// once more after WriteFile has returned.
func (m *Manager) WriteFile(ctx context.Context, id chat.ID, a files.WriteFile, body io.Reader) (files.Answer, error) {
	return m.fileTool(ctx, id, fileCall{tool: files.WriteFileTool, op: files.Write, path: a.Path, args: a, stream: a.Stream, Exchange: files.Exchange{Body: body}})
}

// AppendFile is append_file in the chat; otherwise as [Manager.WriteFile].
func (m *Manager) AppendFile(ctx context.Context, id chat.ID, a files.WriteFile, body io.Reader) (files.Answer, error) {
	return m.fileTool(ctx, id, fileCall{tool: files.AppendFileTool, op: files.Write, path: a.Path, args: a, stream: a.Stream, Exchange: files.Exchange{Body: body}})
}

// EditFile is edit_file in the chat.
func (m *Manager) EditFile(ctx context.Context, id chat.ID, a files.EditFile) (files.Answer, error) {
	return m.fileTool(ctx, id, fileCall{tool: files.EditFileTool, op: files.Edit, path: a.Path, args: a})
}

// ListDir is list_dir in the chat: a line for each entry goes to the writer that begin returns.
func (m *Manager) ListDir(ctx context.Context, id chat.ID, a files.ListDir, begin files.Begin) (files.Answer, error) {
	x := files.Exchange{Begin: begin, Limit: maxList}
	return m.fileTool(ctx, id, fileCall{tool: files.ListDirTool, op: files.Read, path: a.Path, args: a, Exchange: x})
}

// maxList bounds a list in bytes: the most entries of one call, each a line with a name of 255
// bytes and its kind.
const maxList = files.MaxEntries * (255 + 16)

// defaultFileMax is the bound in bytes that FileMax 0 means.
const defaultFileMax = 1 << 30

// Bounds on a call whose content is in the request or is a page, and on one that streams. A
// slow call delays the wake of a sleeping chat.
const (
	fileTime   = time.Minute
	streamTime = 15 * time.Minute
)

func (m *Manager) fileMax() int64 {
	if m.opt.FileMax == 0 {
		return defaultFileMax
	}
	return m.opt.FileMax
}

// fileCall is one call of a tool, with its exchange of content and checks.
type fileCall struct {
	tool   files.Tool
	op     files.Op
	path   string
	args   interface{ Validate() error }
	stream bool
	files.Exchange
}

// writes reports whether the tool changes a file.
func (c fileCall) writes() bool { return c.op != files.Read }

// boundedBegin refuses a stream that file_max would cut before the end of the file.
func (m *Manager) boundedBegin(a files.ReadFile, begin files.Begin) files.Begin {
	return func(first files.Answer) io.Writer {
		if left := first.Size - a.Offset; a.Stream && a.Length == 0 && left > m.fileMax() {
			return refusing{fmt.Errorf("the file has %d bytes from there, which is more than file_max, %d; ask for a length: %w", left, m.fileMax(), chat.ErrInvalid)}
		}
		return begin(first)
	}
}

// refusing is a writer whose every Write fails with err.
type refusing struct{ err error }

func (r refusing) Write([]byte) (int, error) { return 0, r.err }

// fileTool does one call. It checks the caller's name against the rules first, so that a denial
// does not depend on a process of the chat. Then, as the tool follows links in the chat, it
// checks each name that they lead to against the same rules.
func (m *Manager) fileTool(ctx context.Context, id chat.ID, c fileCall) (files.Answer, error) {
	if err := c.args.Validate(); err != nil {
		return files.Answer{}, err
	}
	rec, err := m.reach(ctx, id)
	if err == nil {
		err = m.switchedOff(ctx, rec, string(c.tool), string(c.tool))
	}
	if err != nil {
		return files.Answer{}, err
	}
	if err := m.allowFirst(ctx, rec, &c); err != nil {
		return files.Answer{}, err
	}
	detail := map[string]string{"path": auditText(c.path)}
	if c.writes() {
		if err := m.audit(ctx, rec, string(c.tool), "intent", detail); err != nil {
			return files.Answer{}, err
		}
	}
	a, err := m.callTool(ctx, rec, c)
	m.touch(rec)
	auditErr := m.auditTool(ctx, rec, c, a, err)
	return a, errors.Join(m.told(ctx, rec, err), auditErr)
}

// allowFirst checks the tool and the caller's name, and sets c.Check, which checks further
// names against the same rules.
func (m *Manager) allowFirst(ctx context.Context, rec state.Record, c *fileCall) error {
	if err := m.switchedOff(ctx, rec, string(c.tool), string(c.tool)); err != nil {
		return err
	}
	rules, err := m.rules(rec)
	if err != nil {
		return err
	}
	c.Check = verdict.FileCheck(c.tool, rules.Ruleset)
	for _, op := range c.op.Needs() {
		if d := c.Check(op, m.folded(rec.ID, c.path)); d != nil {
			auditErr := m.auditDenial(ctx, rec, d)
			return errors.Join(m.told(ctx, rec, d), auditErr)
		}
	}
	return followLinks(c, rules)
}

// folded returns the absolute, clean name that the tools give a path, with no link followed.
// They do not expand ~.
func (m *Manager) folded(id chat.ID, p string) string {
	if !path.IsAbs(p) {
		p = m.home(id) + "/" + p
	}
	return path.Clean(p)
}

// auditTool audits the end of a call: every denial, and every write.
func (m *Manager) auditTool(ctx context.Context, rec state.Record, c fileCall, a files.Answer, err error) error {
	var d *files.Denial
	if errors.As(err, &d) {
		return m.auditDenial(ctx, rec, err)
	}
	if !c.writes() {
		return nil
	}
	detail := map[string]string{"path": auditText(c.path)}
	if err == nil {
		detail["file"], detail["size"] = auditText(a.Path), fmt.Sprint(a.Size)
	}
	return m.auditOutcome(ctx, rec, string(c.tool), detail, err)
}

// auditDenial audits a denial with its rule and its source: the rules, which chatd checks, or
// the chat's side, which has walls of its own.
func (m *Manager) auditDenial(ctx context.Context, rec state.Record, err error) error {
	var d *files.Denial
	if !errors.As(err, &d) {
		return nil
	}
	by := "rules"
	var f *files.Failure
	if errors.As(err, &f) {
		by = "the chat's side"
	}
	detail := map[string]string{
		"op": string(d.Op), "path": auditText(d.Path), "rule": auditText(d.Rule), "place": auditText(d.Place), "layer": d.Layer, "by": by,
	}
	if d.Errno != "" {
		detail["errno"] = d.Errno
	}
	return m.audit(ctx, rec, string(d.Tool), "denied", detail)
}

// auditText is a caller's or a chat's text for the audit log: quoted, in ASCII, and
// long enough for any path.
func auditText(s string) string { return strconv.QuoteToASCII(s[:min(len(s), files.MaxPath)]) }

// toolPlan returns the paths that a chat's tools may use: its home, its /tmp, and the profile's
// grants, as far as the view shows them.
func (m *Manager) toolPlan(rec state.Record) shims.FileTool {
	may := shims.FileTool{Workspace: m.home(rec.ID), Roots: []string{"/tmp", "/var/tmp"}, MaxBytes: m.fileMax()}
	may.ReadOutside, may.AllowRead, may.AllowWrite = m.grantedToTools(rec)
	return may
}
