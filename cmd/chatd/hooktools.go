package main

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"unicode"

	"github.com/chatd/chatd/chat"
)

// hookTool is what a tool of a program does, and the arguments that say to what.
type hookTool struct {
	op       string // empty for a command
	names    []string
	optional bool // without the argument it is the working directory, or no command
	list     bool // the argument is a list
	dir      []string
	clean    func(path string) string // what the tool does to a path first
}

// piPath is what pi does to a path: its expandPath of dist/core/tools/path-utils.js, 0.73.1.
func piPath(path string) string {
	return strings.Map(func(r rune) rune {
		if unicode.Is(unicode.Zs, r) && r != '\u1680' {
			return ' '
		}
		return r
	}, strings.TrimPrefix(path, "@"))
}

var (
	hookFile = []string{"file_path", "absolute_path", "path"}
	hookDir  = []string{"dir_path", "path"}
)

// hookTools are the tools of each program that name files or commands. A program's other tools are
// its own matter.
var hookTools = map[string]map[string]hookTool{
	"claude": {
		"Bash": {names: []string{"command"}}, "Read": {op: "read", names: hookFile},
		"Write": {op: "write", names: hookFile}, "Edit": {op: "edit", names: hookFile},
		"MultiEdit":    {op: "edit", names: hookFile},
		"NotebookEdit": {op: "edit", names: []string{"notebook_path"}},
		"Grep":         {op: "read", names: hookDir, optional: true},
		"Glob":         {op: "read", names: hookDir, optional: true},
		"LS":           {op: "read", names: hookDir, optional: true},
	},
	"gemini": {
		"run_shell_command": {names: []string{"command"}, dir: []string{"dir_path", "directory"}},
		"read_file":         {op: "read", names: hookFile},
		"write_file":        {op: "write", names: hookFile}, "replace": {op: "edit", names: hookFile},
		"list_directory":      {op: "read", names: hookDir, optional: true},
		"glob":                {op: "read", names: hookDir, optional: true},
		"search_file_content": {op: "read", names: hookDir, optional: true},
		"grep_search":         {op: "read", names: hookDir, optional: true},
		"read_many_files":     {op: "read", names: []string{"include", "paths"}, list: true},
	},
	"pi": {
		"bash":  {names: []string{"command"}},
		"read":  {op: "read", names: hookFile, clean: piPath},
		"write": {op: "write", names: hookFile, clean: piPath},
		"edit":  {op: "edit", names: hookFile, clean: piPath},
		"grep":  {op: "read", names: hookDir, optional: true, clean: piPath},
		"find":  {op: "read", names: hookDir, optional: true, clean: piPath},
		"ls":    {op: "read", names: hookDir, optional: true, clean: piPath},
	},
	"picoclaw": {
		// exec has a command if its action is run.
		"exec":      {names: []string{"command"}, optional: true, dir: []string{"cwd"}},
		"read_file": {op: "read", names: hookFile}, "write_file": {op: "write", names: hookFile},
		"load_image": {op: "read", names: hookFile}, "send_file": {op: "read", names: hookFile},
		"append_file": {op: "write", names: hookFile}, "edit_file": {op: "edit", names: hookFile},
		"list_dir": {op: "read", names: hookDir, optional: true},
	},
}

// hookCall is a tool call.
type hookCall struct {
	tool, cwd string
	args      map[string]json.RawMessage
}

// check returns the reason why a call is denied; empty lets the program go on.
func (h *hook) check(call hookCall) (reason string, err error) {
	if call.tool == "" {
		return "", chat.Invalid("cannot read the event: want the name of a tool")
	}
	tool, known := h.tools[call.tool]
	if !known {
		return "", nil
	}
	var dir string
	if _, err := argumentOf(call.args, tool.dir, &dir); err != nil {
		return "", err
	}
	call.cwd = call.path(dir)
	targets, err := call.targets(tool)
	if err != nil {
		return "", err
	}
	for _, target := range targets {
		q := explainCase{Cwd: call.cwd, Command: target}
		if tool.op != "" {
			if tool.clean != nil {
				target = tool.clean(target)
			}
			q.Command, q.Op, q.Path = "", tool.op, call.path(target)
		}
		a, err := h.ask(q)
		if err != nil || a.Verdict == "deny" || a.Guard != nil && a.Guard.Verdict == "deny" {
			return h.reason(a), err
		}
	}
	return "", nil
}

// path is where a path of the call leads.
func (call hookCall) path(p string) string {
	if filepath.IsAbs(p) || strings.HasPrefix(p, "~") {
		return p
	}
	return filepath.Join(call.cwd, p)
}

// targets are the command or the paths of a call.
func (call hookCall) targets(tool hookTool) (all []string, err error) {
	var one string
	var given bool
	if tool.list {
		_, err = argumentOf(call.args, tool.names, &all)
	} else if given, err = argumentOf(call.args, tool.names, &one); one != "" {
		all = []string{one}
	} else if !given && tool.optional {
		if tool.op == "" {
			return nil, err
		}
		all = []string{call.cwd}
	}
	pattern := func(target string) bool { return strings.ContainsAny(target, "*?[{") }
	unclear := len(all) == 0 || slices.Contains(all, "") || tool.list && slices.ContainsFunc(all, pattern)
	if err == nil && unclear {
		err = chat.Invalid("cannot check %s: want %s, without a pattern", chat.Quote(call.tool),
			tool.names[0])
	}
	return all, err
}

// argumentOf reads the only one of the names that o has, and reports whether it has one.
func argumentOf(o map[string]json.RawMessage, names []string, to any) (given bool, err error) {
	for _, name := range names {
		raw, ok := o[name]
		if !ok || string(raw) == "null" {
			continue
		}
		if err := json.Unmarshal(raw, to); err != nil || given {
			return false, chat.Invalid("cannot read the event: want one value of the usual kind in %s",
				strings.Join(names, ", "))
		}
		given = true
	}
	return given, nil
}

// reason is what the model is told of a denial.
func (h *hook) reason(a chat.Explained) string {
	switch {
	case a.Guard != nil && a.Guard.Verdict == "deny" && a.Verdict != "deny":
		return fmt.Sprintf("%s: %s: %s", a.Guard.Message, a.Guard.Reason, a.Guard.Instead)
	case a.Rule == "" && len(a.DeniedBy) > 0:
		return "Access denied: " + a.DeniedBy[0].Why
	case a.Rule == "" || h.terse:
		return "Access denied by policy"
	}
	return fmt.Sprintf("Access denied: %s blocked by policy (%s, %s)", a.Name, a.Rule, a.Place)
}
