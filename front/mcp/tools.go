package mcp

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/client"
	"github.com/chatd/chatd/front/api"
	"github.com/chatd/chatd/internal/filewire"
	"github.com/chatd/chatd/internal/verbs"
)

// tools are the tools on one chat.
type tools struct {
	chats verbs.Chats
	id    chat.ID
	// request is the HTTP request's context, with the caller; nil over stdio.
	request context.Context
	// problem logs an internal error; nil over stdio, where the daemon has already logged it.
	problem api.Problems
}

func (t tools) exec(ctx context.Context, a chat.RunSpec) (toolAnswer[chat.RunResult], error) {
	a.OutputMax = cmp.Or(a.OutputMax, MaxText)
	r, err := t.chats.Run(ctx, t.id, a)
	return toolAnswer[chat.RunResult]{runText(r), runValue(r)}, err
}

// readFile limits the page to what an agent can hold, unless it asks for a size.
func (t tools) readFile(
	ctx context.Context, a filewire.ReadFile,
) (toolAnswer[client.FileAnswer], error) {
	own := a.Length == 0 && a.Line == 0 && a.Lines == 0
	if own {
		a.Length = MaxText
	}
	var b bytes.Buffer
	got, err := t.chats.ReadFile(ctx, t.id, a, func(filewire.Answer) io.Writer { return &b })
	if own && got.Truncated {
		cutRune(&got, &b)
	}
	return page(got, b.Bytes()), err
}

func (t tools) writeFile(ctx context.Context, a filewire.WriteFile) (toolAnswer[client.FileAnswer], error) {
	got, err := t.chats.WriteFile(ctx, t.id, a, nil)
	return wrote(got), err
}

func (t tools) appendFile(ctx context.Context, a filewire.WriteFile) (toolAnswer[client.FileAnswer], error) {
	got, err := t.chats.AppendFile(ctx, t.id, a, nil)
	return wrote(got), err
}

func (t tools) editFile(ctx context.Context, a filewire.EditFile) (toolAnswer[client.FileAnswer], error) {
	got, err := t.chats.EditFile(ctx, t.id, a)
	return wrote(got), err
}

func (t tools) listDir(ctx context.Context, a filewire.ListDir) (toolAnswer[client.FileAnswer], error) {
	var b bytes.Buffer
	got, err := t.chats.ListDir(ctx, t.id, a, func(filewire.Answer) io.Writer { return &b })
	return page(got, b.Bytes()), err
}

func (t tools) send(ctx context.Context, a chat.Input) (toolAnswer[terminal], error) {
	if a.Wait == nil {
		return toolAnswer[terminal]{texts: []string{"typed; whether the program took it is not known, terminal_read shows"}}, t.chats.Input(ctx, t.id, a)
	}
	got, err := t.chats.InputWait(ctx, t.id, a)
	return toolAnswer[terminal]{typedText(got), typedValue(got)}, err
}

// terminalRead has the arguments of terminal_read.
type terminalRead struct {
	Since   *int64 `json:"since,omitempty" minimum:"0" doc:"A cursor: answer with what was printed from there on."`
	History int    `json:"history,omitempty" minimum:"0" maximum:"2000" doc:"Show so many lines too that were scrolled away."`
}

func (t tools) screen(ctx context.Context, a terminalRead) (toolAnswer[terminal], error) {
	if a.Since != nil {
		l, err := t.chats.Log(ctx, t.id, *a.Since)
		return toolAnswer[terminal]{logText(l), logValue(l)}, err
	}
	s, err := t.chats.ScreenWith(ctx, t.id, chat.ScreenSpec{History: a.History})
	at := fmt.Sprintf("cursor: row %d, column %d of %d by %d, counted from 0", s.CursorRow, s.CursorCol,
		s.Rows, s.Cols)
	return toolAnswer[terminal]{[]string{bounded(s.Text), at}, screenValue(s)}, err
}

// explain leaves out the operator's rules and their places. A denial does not show them to a chat
// either, and a policy may require that (messages: vague).
func (t tools) explain(ctx context.Context, q chat.Question) (out toolAnswer[chat.Explained], err error) {
	e, err := t.chats.Explain(ctx, t.id, q)
	if err != nil {
		return out, err
	}
	e.Rule, e.Place, e.Layer = "", "", ""
	if e.Guard != nil {
		g := *e.Guard
		g.Place = ""
		e.Guard = &g
	}
	e.DeniedBy = slices.Clone(e.DeniedBy)
	for i, d := range e.DeniedBy {
		if d.By == "rules" {
			e.DeniedBy[i] = chat.DeniedBy{By: d.By, Why: "the file rules deny it",
				Fix: "an operator can change them"}
		}
	}
	text, err := json.Marshal(e)
	if err != nil {
		return out, fmt.Errorf("cannot write the answer: %w", err)
	}
	return toolAnswer[chat.Explained]{[]string{string(text)}, e}, nil
}
