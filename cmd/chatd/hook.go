package main

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"
	"unicode/utf8"

	"github.com/urfave/cli/v2"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/front/printer"
)

const (
	// hookBlocks is the exit code by which a hook of Claude Code or gemini-cli blocks its tool.
	hookBlocks = 2
	// maxHookInput bounds what a program sends of one call: its files' content is in it.
	maxHookInput = 16 << 20
)

// hookTimeout bounds one question to the daemon: a program runs the tool if its hook takes longer
// than it waits, which is 60 s in gemini-cli.
var hookTimeout = 20 * time.Second

func hookCommand() *cli.Command {
	return command("hook", hookCheck,
		&cli.StringFlag{Name: "policy", Usage: "the file of rules, YAML or JSON5", TakesFile: true},
		textFlag("chat", "the rules of this `CHAT`"),
		&cli.StringFlag{Name: "agent", Value: chat.DefaultAgent, Usage: "whose rules of the file"},
		&cli.StringFlag{Name: "home", EnvVars: []string{"HOME"}, Usage: "what ~ stands for"},
		textFlag("cwd", "where relative paths begin, if the program does not say (default: here)"),
	)
}

func hookCheck(c *cli.Context) error {
	program := c.Args().Get(1)
	tools, known := hookTools[program]
	if c.NArg() != 2 || c.Args().First() != "check" || !known {
		return chat.Invalid("cannot do hook %s: want hook check claude, gemini, pi or picoclaw",
			chat.Quote(strings.Join(c.Args().Slice(), " ")))
	}
	signal.Reset(os.Interrupt, syscall.SIGTERM) // an interrupt ends it whatever it waits for
	h := hook{tools: tools, out: c.App.Writer}
	err := h.rules(c)
	if err == nil && program == "picoclaw" {
		err = h.serve(c.App.Reader)
	} else if program != "picoclaw" {
		err = h.once(c.App.Reader, program, err)
	}
	if err != nil {
		fmt.Fprintf(c.App.ErrWriter, "chatd: %s\n", printer.Escape(chat.ErrorText(err)))
		return &exitError{hookBlocks}
	}
	return nil
}

// hook answers one program.
type hook struct {
	tools map[string]hookTool
	ask   func(explainCase) (chat.Explained, error)
	terse bool // the reason leaves the rule out
	cwd   string
	out   io.Writer
}

// rules finds out whom to ask.
func (h *hook) rules(c *cli.Context) (err error) {
	if h.cwd, err = filepath.Abs(c.String("cwd")); err != nil {
		return fmt.Errorf("cannot use the working directory: %w", err)
	}
	switch {
	case c.IsSet("policy") == c.IsSet("chat"):
		return chat.Invalid("cannot check: want --policy FILE or --chat CHAT")
	case c.IsSet("chat"):
		id, err := chatArg(c.String("chat"))
		h.ask = func(q explainCase) (chat.Explained, error) {
			asked := chat.Question{Path: q.Path, Op: q.Op, Command: q.Command}
			if q.Command != "" {
				asked.Command = "cd '" + strings.ReplaceAll(q.Cwd, "'", `'\''`) + "'\n" + q.Command
			}
			ctx, cancel := context.WithTimeout(c.Context, hookTimeout)
			defer cancel()
			return daemon(c).Explain(ctx, id, asked)
		}
		return err
	}
	policy, err := loadPolicy(c)
	if err != nil {
		return err
	}
	e := newExplainer(policy)
	h.terse = policy.Terse
	h.ask = func(q explainCase) (chat.Explained, error) {
		q.Agent, q.Home = c.String("agent"), c.String("home")
		return e.ask(q)
	}
	return nil
}

// once answers one event; failed is an error that came before it.
func (h *hook) once(in io.Reader, program string, failed error) error {
	reason, err := "", failed
	if err == nil {
		reason, err = h.event(in)
	}
	var answer any = struct{}{}
	switch {
	case program == "pi" && (err != nil || reason != ""):
		if err != nil {
			reason = "cannot check the call: " + err.Error()
		}
		answer = map[string]any{"block": true, "reason": reason}
	case err != nil:
		return err
	case program == "claude" && reason == "":
		return nil // with an answer the program would not ask its user
	case program == "claude":
		answer = map[string]any{"hookSpecificOutput": map[string]string{"hookEventName": "PreToolUse",
			"permissionDecision": "deny", "permissionDecisionReason": reason}}
	case reason != "":
		answer = map[string]string{"decision": "deny", "reason": reason}
	}
	return errors.Join(err, printer.JSONLine(h.out, answer))
}

// event reads one event of Claude Code, gemini-cli or pi, and returns the reason of a denial.
func (h *hook) event(in io.Reader) (reason string, err error) {
	text, err := io.ReadAll(io.LimitReader(in, maxHookInput+1))
	if err != nil {
		return "", fmt.Errorf("cannot read the event: %w", err)
	}
	return h.call(text, []string{"tool_name", "toolName"}, []string{"cwd"}, "tool_input", "input")
}

// call checks one call of a tool, which has these in its object.
func (h *hook) call(text []byte, tool, cwd []string, args ...string) (reason string, err error) {
	e, err := object(text)
	if err != nil {
		return "", err
	}
	call := hookCall{cwd: h.cwd}
	_, terr := argumentOf(e, tool, &call.tool)
	_, cerr := argumentOf(e, cwd, &call.cwd)
	if err := cmp.Or(terr, cerr); err != nil {
		return "", err
	}
	given := e[args[0]]
	if given == nil {
		given = e[args[len(args)-1]]
	}
	if call.args, err = object(given); err != nil {
		return "", err
	}
	return h.check(call)
}

// object reads a JSON object. Its keys are compared exactly, as the programs do.
func object(text []byte) (o map[string]json.RawMessage, err error) {
	if len(text) > maxHookInput || !utf8.Valid(text) || json.Unmarshal(text, &o) != nil || o == nil {
		return nil, chat.Invalid("cannot read the event: want a JSON object in UTF-8 of at most %d bytes",
			maxHookInput)
	}
	return o, nil
}

// serve answers PicoClaw's requests, JSON-RPC 2.0 with one message a line, until they end.
func (h *hook) serve(in io.Reader) error {
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, maxHookInput)
	for lines.Scan() {
		var m struct {
			ID     json.RawMessage `json:"id"`
			Method string          `json:"method"`
			Params json.RawMessage `json:"params"`
		}
		if err := json.Unmarshal(lines.Bytes(), &m); err != nil {
			return chat.Invalid("cannot read a message: %w", err)
		}
		if id := string(m.ID); id == "" || id == "0" || id == "null" {
			continue // a notification
		}
		answer := map[string]any{"jsonrpc": "2.0", "id": m.ID, "result": h.result(m.Method, m.Params)}
		if err := printer.JSONLine(h.out, answer); err != nil {
			return err
		}
	}
	if err := lines.Err(); err != nil {
		return chat.Invalid("cannot read a message: %w", err)
	}
	return nil
}

// result answers one request of PicoClaw.
func (h *hook) result(method string, params []byte) any {
	switch method {
	case "hook.hello":
		return map[string]any{"ok": true, "name": "chatd"}
	case "hook.before_tool", "hook.approve_tool":
	default:
		return map[string]string{"action": "continue"}
	}
	reason, err := h.call(params, []string{"tool"}, nil, "arguments")
	if err != nil {
		reason = "cannot check the call: " + err.Error()
	}
	switch {
	case method == "hook.approve_tool":
		return map[string]any{"approved": reason == "", "reason": reason}
	case reason != "":
		return map[string]string{"action": "deny_tool", "reason": reason}
	}
	return map[string]string{"action": "continue"}
}
