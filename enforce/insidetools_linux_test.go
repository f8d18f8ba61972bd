package enforce

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/chatd/chatd/filerules"
	"github.com/chatd/chatd/files"
)

// toolRun is what the file tools are to do inside a session.
type toolRun struct {
	Home, Rules string
	Checked     bool // by the rules, before anything is opened
	Tool        files.Tool
	Paths       []string
}

// toolResult is what came of one path.
type toolResult struct {
	Done   bool
	ByRule bool // denied by a rule of the policy
	// ByKernel: the file was found and not allowed, for whatever reason the kernel had.
	ByKernel bool
	Error    string
}

// useTools answers one toolRun as the chat.
func useTools(line []byte) []byte {
	var run toolRun
	err := json.Unmarshal(line, &run)
	out := make([]toolResult, len(run.Paths))
	if err == nil {
		err = run.all(out)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	b, _ := json.Marshal(out)
	return b
}

func (run toolRun) all(out []toolResult) error {
	opt := files.Options{Workspace: run.Home}
	if run.Checked {
		policy, err := filerules.Load("rules.yaml", []byte(run.Rules))
		if err != nil {
			return err
		}
		rules, err := policy.For(filerules.Scope{Home: run.Home, Resolve: filerules.Physical})
		if err != nil {
			return err
		}
		opt.Check = checkBy(rules)
	}
	tools, err := files.Open(opt)
	if err != nil {
		return err
	}
	defer tools.Close()
	for i, p := range run.Paths {
		err := run.one(tools, p)
		var d *files.Denial
		out[i] = toolResult{Done: err == nil, Error: fmt.Sprint(err)}
		if errors.As(err, &d) {
			// What is asked as bash is what the kernel would refuse.
			out[i].ByKernel = d.Rule == files.RuleKernel || d.Op == files.Bash || d.Message == byKernel(filerules.Verdict{ByKernel: true})
			out[i].ByRule = !out[i].ByKernel && (strings.HasPrefix(d.Place, "rules.yaml:") || d.Place == "built in")
			out[i].Error += fmt.Sprintf(" (%s, %s: %s of %s)", d.Rule, d.Place, d.Op, d.Path)
		}
	}
	return nil
}

// checkBy asks the rules as chatd does (verdict.FileCheck).
func checkBy(rules *filerules.Ruleset) files.Check {
	ops := map[files.Op][]filerules.Op{
		files.Read: {filerules.Read}, files.Write: {filerules.Write}, files.Edit: {filerules.Edit},
		files.Bash: {filerules.Bash, filerules.Write},
	}
	return func(op files.Op, name string) *files.Denial {
		for _, o := range ops[op] {
			v, err := rules.Verdict(name, o)
			if err != nil {
				return &files.Denial{Op: op, Path: name, Rule: "cannot be checked"}
			}
			if v.Denied() {
				return &files.Denial{Op: op, Path: name, Rule: v.Rule.String(), Place: v.Rule.Place, Layer: string(v.Layer), Message: byKernel(v)}
			}
		}
		return nil
	}
}

// byKernel marks a denial that the rules do not say of this operation or name itself.
func byKernel(v filerules.Verdict) string {
	if v.ByKernel {
		return "by the kernel"
	}
	return ""
}

// one lets one tool do one path. Whatever is written holds one x, which edit_file
// looks for.
func (run toolRun) one(tools *files.Tools, p string) (err error) {
	begin := func(files.Answer) io.Writer { return io.Discard }
	x, a := "xw", "a"
	switch run.Tool {
	case files.ReadFileTool:
		_, err = tools.ReadFile(files.ReadFile{Path: p}, begin)
	case files.ListDirTool:
		_, err = tools.ListDir(files.ListDir{Path: p}, begin)
	case files.EditFileTool:
		_, err = tools.EditFile(files.EditFile{Path: p, OldText: "x", NewText: "xe"})
	case files.WriteFileTool:
		_, err = tools.WriteFile(files.WriteFile{Path: p, Content: &x}, strings.NewReader(""))
	case files.AppendFileTool:
		_, err = tools.AppendFile(files.WriteFile{Path: p, Content: &a}, strings.NewReader(""))
	default:
		err = fmt.Errorf("no tool %s", run.Tool)
	}
	return err
}

// use has the file tools do something as the chat, behind its walls.
func (s *inside) use(t testing.TB, run toolRun) []toolResult {
	t.Helper()
	b, err := json.Marshal(run)
	must(t, err)
	_, err = s.in.Write(append(b, '\n'))
	must(t, err)
	line, err := s.out.ReadBytes('\n')
	must(t, err)
	var out []toolResult
	must(t, json.Unmarshal(line, &out))
	return out
}
