package provision

import (
	"context"
	"errors"
	"fmt"
	"path"
	"strconv"
	"time"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/files"
	"github.com/chatd/chatd/shims"
	"github.com/chatd/chatd/state"
	"github.com/chatd/chatd/verdict"
)

// FileTool is one of the five tools in the chat, with which talk speaks. The chat may be asleep,
// and is not woken. The request is made here: talk cannot choose another tool or path.
func (m *Manager) FileTool(ctx context.Context, id chat.ID, u files.Use, talk files.Talk) error {
	args, err := u.Read()
	if err != nil {
		return err
	}
	c := newFileCall(u.Tool, args, talk)
	c.stream = c.stream && !u.Short
	return m.fileTool(ctx, id, c)
}

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

// fileCall is one call of a tool. What its tool says, talk reads.
type fileCall struct {
	tool   files.Tool
	op     files.Op
	path   string
	args   interface{ Validate() error }
	stream bool
	check  files.Check
	links  []string
	linked func(all []files.Link) error
	talk   files.Talk
}

func newFileCall(tool files.Tool, args files.Args, talk files.Talk) *fileCall {
	c := &fileCall{tool: tool, args: args, talk: talk}
	c.path, c.op, c.stream = args.Named()
	return c
}

// writes reports whether the tool changes a file.
func (c *fileCall) writes() bool { return c.op != files.Read }

// fileTool does one call. It checks the caller's name against the rules first, so that a denial
// does not depend on a process of the chat. Then, as the tool follows links in the chat, it
// checks each name that they lead to against the same rules.
func (m *Manager) fileTool(ctx context.Context, id chat.ID, c *fileCall) error {
	rec, err := m.reach(ctx, id)
	if err == nil {
		err = m.allowFirst(ctx, rec, c)
	}
	if err != nil {
		return err
	}
	detail := map[string]string{"path": auditText(c.path)}
	if c.writes() {
		if err := m.audit(ctx, rec, string(c.tool), "intent", detail); err != nil {
			return err
		}
	}
	a, err := m.callTool(ctx, rec, c)
	m.touch(rec)
	auditErr := m.auditTool(ctx, rec, c, a, err)
	return errors.Join(m.told(ctx, rec, err), auditErr)
}

// allowFirst checks the tool and the caller's name, and sets c.check, which checks further
// names against the same rules.
func (m *Manager) allowFirst(ctx context.Context, rec state.Record, c *fileCall) error {
	if err := m.switchedOff(ctx, rec, string(c.tool), string(c.tool)); err != nil {
		return err
	}
	rules, err := m.rules(rec)
	if err != nil {
		return err
	}
	c.check = verdict.FileCheck(c.tool, rules.Ruleset)
	for _, op := range c.op.Needs() {
		if d := c.check(op, m.folded(rec.ID, c.path)); d != nil {
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
func (m *Manager) auditTool(ctx context.Context, rec state.Record, c *fileCall, a files.Answer, err error) error {
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
