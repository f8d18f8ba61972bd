package main

import (
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/urfave/cli/v2"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/filerules"
	"github.com/chatd/chatd/front/printer"
	"github.com/chatd/chatd/internal/config/configfile"
	"github.com/chatd/chatd/internal/shell"
)

func explainCommand() *cli.Command {
	return command("explain", explain,
		&cli.StringFlag{Name: "policy", Usage: "the file of rules, YAML or JSON5", TakesFile: true},
		&cli.StringFlag{Name: "agent", Value: chat.DefaultAgent, Usage: "whose rules"},
		&cli.StringFlag{Name: "op", Value: "read", Usage: "read, write, edit or bash"},
		&cli.StringFlag{Name: "command", Aliases: []string{"c"}, Usage: "check the paths of a shell command"},
		textFlag("to", "ask about HOST:PORT, with udp: in front for UDP"),
		&cli.StringFlag{Name: "home", EnvVars: []string{"HOME"}, Usage: "what ~ stands for"},
		textFlag("cwd", "where relative paths and patterns begin (default: here)"),
	)
}

// explainCase is one question, as a line of standard input has it.
type explainCase struct {
	Agent   string `json:"agent"`
	Home    string `json:"home"`
	Cwd     string `json:"cwd"`
	Path    string `json:"path"`
	Op      string `json:"op"`
	Command string `json:"command"`
}

func explain(c *cli.Context) error {
	if c.String("policy") == "" {
		return explainChat(c)
	}
	signal.Reset(os.Interrupt, syscall.SIGTERM) // an interrupt ends it whatever it waits for
	policy, err := loadPolicy(c)
	if err != nil {
		return err
	}
	if c.Bool("json") && c.NArg() == 0 && !c.IsSet("command") {
		return explainLines(c.App.Reader, c.App.Writer, policy)
	}
	q, err := caseOfFlags(c)
	if err != nil {
		return err
	}
	cwd, err := os.Getwd()
	if q.Cwd == "" && err == nil {
		q.Cwd = cwd
	}
	if q.Cwd, err = filepath.Abs(q.Cwd); err != nil {
		return fmt.Errorf("cannot use the working directory: %w", err)
	}
	a, err := newExplainer(policy).ask(q)
	return answerExplained(c, a, err, printer.Explained(q.Command, a))
}

// loadPolicy reads --policy, and says on standard error what is probably not meant.
func loadPolicy(c *cli.Context) (*filerules.Policy, error) {
	p, err := configfile.Rules(c.String("policy"))
	if err != nil {
		return nil, err
	}
	for _, w := range p.Warnings {
		fmt.Fprintf(c.App.ErrWriter, "chatd: warning: %s\n", printer.Escape(w))
	}
	return p, nil
}

func caseOfFlags(c *cli.Context) (explainCase, error) {
	if c.IsSet("to") {
		return explainCase{}, chat.Invalid("cannot use --to: it goes with CHAT")
	}
	q := explainCase{Agent: c.String("agent"), Home: c.String("home"), Cwd: c.String("cwd"),
		Path: c.Args().First(), Op: c.String("op"), Command: c.String("command")}
	if c.NArg() > 1 || (c.NArg() == 1) == c.IsSet("command") {
		return q, chat.Invalid("cannot explain: want one PATH or --command, got %d arguments", c.NArg())
	}
	if q.Command != "" {
		q.Op = ""
	}
	return q, nil
}

func (q explainCase) scope() filerules.Scope {
	return filerules.Scope{Agent: q.Agent, Home: q.Home, Cwd: q.Cwd, Resolve: filerules.Physical}
}

// ask asks the rules, which are of the case's scope.
func (q explainCase) ask(rs *filerules.Ruleset) (chat.Explained, error) {
	var err error
	var v filerules.Verdict
	switch {
	case q.Command != "" && (q.Path != "" || q.Op != ""):
		return chat.Explained{}, chat.Invalid("cannot answer: want path and op, or command, got both")
	case q.Command != "":
		v, err = shell.CheckCommand(rs, q.Command)
	default:
		op, bad := filerules.ParseOp(q.Op)
		if bad != nil {
			return chat.Explained{}, bad
		}
		v, err = rs.Verdict(q.Path, op)
	}
	if err != nil {
		return chat.Explained{}, err
	}
	return v.Explained(), nil
}

// parseCase reads one line.
func parseCase(line []byte) (explainCase, error) {
	var q explainCase
	if err := chat.Strict(line, &q); err != nil {
		return q, chat.Invalid("cannot read the case: %v: want {agent, home, cwd, path, op} or {agent, home, cwd, command}",
			err)
	}
	return q, nil
}

// explainChat asks the daemon about a chat: by the rules that hold for it now, and
// by the names that links have in its view.
func explainChat(c *cli.Context) error {
	for _, name := range []string{"agent", "cwd"} {
		if c.IsSet(name) {
			return chat.Invalid("cannot use --%s: it goes with --policy", name)
		}
	}
	id, err := chatArg(c.Args().First())
	if err != nil {
		return fmt.Errorf("cannot explain: want --policy FILE, or CHAT and PATH: %w", err)
	}
	q, err := questionOfFlags(c)
	if err == nil {
		err = q.Validate()
	}
	if err != nil {
		return err
	}
	a, err := daemon(c).Explain(c.Context, id, q)
	if q.Host != "" {
		return answerExplained(c, a, err, printer.Destination(a))
	}
	return answerExplained(c, a, err, printer.Explained(q.Command, a))
}

// answerExplained is answer, with the exit code of a denial for what is denied.
func answerExplained(c *cli.Context, a chat.Explained, err error, text string) error {
	if err := answer(c, a, err, text); err != nil {
		return err
	}
	if a.Verdict == "deny" || a.Guard != nil && a.Guard.Verdict == "deny" {
		return &exitError{chat.ExitCode(chat.ErrDenied)}
	}
	return nil
}

// questionOfFlags is what the arguments behind CHAT and the flags ask.
func questionOfFlags(c *cli.Context) (chat.Question, error) {
	q := chat.Question{Path: c.Args().Get(1), Command: c.String("command")}
	given := c.NArg() - 1
	for _, name := range []string{"command", "to"} {
		if c.IsSet(name) {
			given++
		}
	}
	switch {
	case given != 1:
		const want = "want CHAT and one PATH or --command or --to"
		return q, chat.Invalid("cannot explain: %s, got %d arguments", want, c.NArg())
	case c.IsSet("to"):
		to, err := chat.ParseDestination(c.String("to"))
		q.Host, q.Port, q.UDP = to.Host, to.Port, to.UDP
		return q, err
	case q.Command == "":
		q.Op = c.String("op")
	}
	return q, nil
}
