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
	"github.com/chatd/chatd/filerules"
	"github.com/chatd/chatd/files"
	"github.com/chatd/chatd/shims"
	"github.com/chatd/chatd/state"
)

// ReadFile is read_file in the chat: its content goes to what begin returns. The
// chat need not be awake, and is not woken.
func (m *Manager) ReadFile(ctx context.Context, id chat.ID, a files.ReadFile, begin files.Begin) (files.Answer, error) {
	limit := int64(files.MaxPage)
	if a.Stream {
		limit = m.fileMax()
	}
	x := files.Exchange{Begin: m.boundedBegin(a, begin), Limit: limit}
	return m.fileTool(ctx, id, fileCall{tool: files.ReadFileTool, op: files.Read, path: a.Path, args: a, stream: a.Stream, Exchange: x})
}

// WriteFile is write_file in the chat; the content is a's or body's. body may be
// read once more after WriteFile has returned.
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

// ListDir is list_dir in the chat: a line for each entry goes to what begin returns.
func (m *Manager) ListDir(ctx context.Context, id chat.ID, a files.ListDir, begin files.Begin) (files.Answer, error) {
	x := files.Exchange{Begin: begin, Limit: maxList}
	return m.fileTool(ctx, id, fileCall{tool: files.ListDirTool, op: files.Read, path: a.Path, args: a, Exchange: x})
}

// maxList bounds a list in bytes: so many names as are asked for at once, of 255
// bytes, each on a line that says what it is.
const maxList = files.MaxEntries * (255 + 16)

// defaultFileMax is what FileMax 0 means, in bytes.
const defaultFileMax = 1 << 30

// How long a call may take: one whose content is in the request or is a page, and
// one that streams. Who is slow keeps a chat that is asleep from being woken.
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

// fileCall is one call of a tool, with what is told and asked meanwhile.
type fileCall struct {
	tool   files.Tool
	op     files.Op
	path   string
	args   interface{ Validate() error }
	stream bool
	files.Exchange
}

// writes reports whether the tool changes something.
func (c fileCall) writes() bool { return c.op != files.Read }

// boundedBegin refuses a stream that would end before the file does.
func (m *Manager) boundedBegin(a files.ReadFile, begin files.Begin) files.Begin {
	return func(first files.Answer) io.Writer {
		if left := first.Size - a.Offset; a.Stream && a.Length == 0 && left > m.fileMax() {
			return refusing{fmt.Errorf("the file has %d bytes from there, which is more than file_max, %d; ask for a length: %w", left, m.fileMax(), chat.ErrInvalid)}
		}
		return begin(first)
	}
}

// refusing is a writer that takes nothing.
type refusing struct{ err error }

func (r refusing) Write([]byte) (int, error) { return 0, r.err }

// fileTool does one call: judged here first, by the name that the caller uses, so
// that a denial does not hang on the word of a process of the chat; and then
// there, where links are followed, with the same rules.
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

// allowFirst judges the tool and the name that the caller uses, and has c judge
// further names by the same rules.
func (m *Manager) allowFirst(ctx context.Context, rec state.Record, c *fileCall) error {
	if err := m.switchedOff(ctx, rec, string(c.tool), string(c.tool)); err != nil {
		return err
	}
	rules, err := m.rules(rec)
	if err != nil {
		return err
	}
	c.Check = judgeOf(c.tool, rules.Ruleset)
	for _, op := range c.op.Needs() {
		if d := c.Check(op, m.folded(rec.ID, c.path)); d != nil {
			auditErr := m.auditDenial(ctx, rec, d)
			return errors.Join(m.told(ctx, rec, d), auditErr)
		}
	}
	return followLinks(c, rules)
}

// folded is the name that the tools give a path, whatever links there are. They
// know no ~.
func (m *Manager) folded(id chat.ID, p string) string {
	if !path.IsAbs(p) {
		p = m.home(id) + "/" + p
	}
	return path.Clean(p)
}

// accessOps are the names that package filerules has for the operations. What is asked as
// bash is whether the kernel's walls leave a new file open: one that may not be written
// or edited is closed until it is read-only.
var accessOps = map[files.Op][]filerules.Op{
	files.Read: {filerules.Read}, files.Write: {filerules.Write}, files.Edit: {filerules.Edit},
	files.Bash: {filerules.Bash, filerules.Write},
}

// judgeOf asks the rules. What cannot be judged is denied.
func judgeOf(tool files.Tool, rules *filerules.Ruleset) files.Check {
	return func(op files.Op, name string) *files.Denial {
		d := &files.Denial{Tool: tool, Op: op, Path: name, Rule: "cannot be judged"}
		for _, o := range accessOps[op] {
			v, err := rules.Verdict(name, o)
			if err != nil {
				d.Message = err.Error()
				return d
			}
			if v.Denied() {
				d.Op, d.Rule, d.Place, d.Layer = files.Op(o.String()), v.Rule.String(), v.Rule.Place, string(v.Layer)
				d.Message = rules.Policy().Message(name)
				return d
			}
		}
		return nil
	}
}

// auditTool writes how a call ended: every denial, and every write.
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

// auditDenial writes what was denied, by which rule, and who says so: the rules,
// which are judged here, or the chat's side, which has walls of its own.
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

// toolPlan says where the tools of a chat may go: its home and its /tmp, and what the
// profile's grants add, as far as the view has it.
func (m *Manager) toolPlan(rec state.Record) shims.FileTool {
	may := shims.FileTool{Workspace: m.home(rec.ID), Roots: []string{"/tmp", "/var/tmp"}, MaxBytes: m.fileMax()}
	may.ReadOutside, may.AllowRead, may.AllowWrite = m.grantedToTools(rec)
	return may
}
