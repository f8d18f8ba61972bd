package main

import (
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/front/printer"
)

// terminalCommands are about a chat's terminal.
func terminalCommands() []*cli.Command {
	look := &cli.BoolFlag{Name: "read-only", Aliases: []string{"r"}, Usage: "take no keys but Ctrl-\\"}
	return []*cli.Command{sendCommand(), screenCommand(), logCommand(), command("attach", ofChat(attach), look)}
}

func sendCommand() *cli.Command {
	return command("send", chatAnd(0, "cannot send: want CHAT and a text", send),
		boolFlag("no-enter", "do not press Enter after the text"),
		listFlag("keys", "press these `KEYS`, with commas between them"),
		boolFlag("key-by-key", "type the text a character at a time, never as a paste; at most 1000"),
		listFlag("only-if", "type only on this `CONDITION`: prompt, no-prompt or a program's name"),
		textFlag("size", "set the terminal's size, `COLUMNSxROWS`, first"),
		&cli.StringFlag{Name: "wait", Aliases: []string{"until"},
			Usage: "wait for prompt, output, quiet or screen, `UNTIL` then"},
		textFlag("pattern",
			"for --wait screen: a regular `EXPRESSION` (RE2); ^ and $ are those of a line as printed, wrapped or not"),
		timeFlag("quiet",
			"for --wait quiet or screen: nothing printed for this `TIME`", "1s, and 0s for screen"),
		boolFlag("raw", "with --wait: every byte that was printed"),
		timeFlag("max", "wait no longer than this `TIME`, at most 10m", "1m"),
	)
}

func send(c *cli.Context, id chat.ID) (err error) {
	words := c.Args().Tail()
	in := chat.Input{Text: strings.Join(words, " "), Keys: c.StringSlice("keys"),
		KeyByKey: c.Bool("key-by-key")}
	if in.OnlyIf, err = onlyIf(c.StringSlice("only-if")); err != nil {
		return err
	}
	if len(words) == 1 && words[0] == "-" {
		if in.Text, err = readText(c.App.Reader, chat.MaxInput); err != nil {
			return err
		}
	}
	if in.Size, err = sizeFlag(c.String("size")); err != nil {
		return err
	}
	in.Enter = len(words) > 0 && len(in.Keys) == 0 && !c.Bool("no-enter")
	if len(words) == 0 && len(in.Keys) == 0 && in.Size == nil {
		return chat.Invalid("cannot send: want a text, - or --keys")
	}
	if c.IsSet("wait") || c.IsSet("quiet") || c.IsSet("max") || c.IsSet("pattern") {
		in.Wait = &chat.Wait{Until: c.String("wait"), Pattern: c.String("pattern"),
			Quiet: chat.Duration(c.Duration("quiet")), Max: chat.Duration(c.Duration("max"))}
	}
	if err := in.Validate(); err != nil {
		return err
	}
	if in.Wait != nil {
		return sendAndWait(c, id, in)
	}
	defer progress(c, "typing")()
	return daemon(c).Input(c.Context, id, in)
}

// sizeFlag reads --size.
func sizeFlag(s string) (*chat.TTY, error) {
	if s == "" {
		return nil, nil
	}
	cols, rows, _ := strings.Cut(s, "x")
	t := new(chat.TTY)
	var err error
	if t.Cols, err = strconv.Atoi(cols); err == nil {
		t.Rows, err = strconv.Atoi(rows)
	}
	if err != nil {
		return nil, chat.Invalid("cannot use --size %s: want COLUMNSxROWS, as 200x50", chat.Quote(s))
	}
	return t, nil
}

// onlyIf reads --only-if.
func onlyIf(words []string) (*chat.OnlyIf, error) {
	if len(words) == 0 {
		return nil, nil
	}
	var o chat.OnlyIf
	for _, w := range words {
		prompt := map[string]string{"prompt": chat.PromptPresent, "no-prompt": chat.PromptAbsent}[w]
		switch {
		case prompt != "" && o.Prompt == "":
			o.Prompt = prompt
		case prompt == "" && w != "" && o.Program == "":
			o.Program = w
		default:
			return nil, chat.Invalid("cannot use --only-if %s: want prompt or no-prompt once, and one program's name",
				chat.Quote(strings.Join(words, ",")))
		}
	}
	return &o, nil
}

// sendAndWait writes what was printed, and passes the exit code on.
func sendAndWait(c *cli.Context, id chat.ID, in chat.Input) error {
	done := progress(c, "waiting")
	got, err := daemon(c).InputWait(c.Context, id, in)
	done()
	if err != nil {
		return err
	}
	if c.Bool("json") {
		return printer.JSON(c.App.Writer, got)
	}
	if err := printer.Typed(c.App.Writer, got, c.Bool("raw")); err != nil {
		return err
	}
	switch {
	case got.Until == chat.UntilMore:
		fmt.Fprintln(c.App.ErrWriter,
			"chatd: the shell waits for the rest of the line, as after an open quote; give it up with: chatd send --keys ctrl-c", id)
		return &exitError{2}
	case got.Until == chat.UntilMax:
		fmt.Fprintln(c.App.ErrWriter,
			"chatd: the terminal is not done yet; read on with: chatd log -f --since", got.Cursor, id)
		return &exitError{timeoutExit}
	case got.Until == chat.UntilEnded:
		fmt.Fprintln(c.App.ErrWriter, "chatd: the session has ended")
	case got.Exit != nil && *got.Exit != 0:
		return &exitError{*got.Exit}
	}
	return nil
}

func screenCommand() *cli.Command {
	return command("screen", ofChat(screen),
		boolFlag("styles", "with colours, bold and the like"),
		&cli.IntFlag{Name: "history",
			Usage: "and this `NUMBER` of lines that were scrolled away, at most 2000"},
	)
}

func screen(c *cli.Context, id chat.ID) error {
	s, err := daemon(c).ScreenWith(c.Context, id,
		chat.ScreenSpec{Styles: c.Bool("styles"), History: c.Int("history")})
	return answerBy(c, s, err, func(w io.Writer) error { return printer.Screen(w, s, c.Bool("styles")) })
}
