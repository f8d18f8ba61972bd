package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/filerules"
	"github.com/chatd/chatd/front/printer"
	"github.com/chatd/chatd/internal/guard"
)

const (
	maxCaseLine = 1 << 20
	maxRulesets = 64 // compiled rule sets that are kept
)

// explainer answers cases, with the rules of each scope compiled once.
type explainer struct {
	policy   *filerules.Policy
	guard    *guard.Guard
	noGuard  error
	compiled map[explainCase]*filerules.Ruleset
}

func newExplainer(policy *filerules.Policy) *explainer {
	cfg := chat.DefaultGuard()
	if policy.Guard != nil {
		cfg = *policy.Guard
	}
	e := &explainer{policy: policy, compiled: map[explainCase]*filerules.Ruleset{}}
	e.guard, e.noGuard = guard.New(cfg)
	return e
}

// explainLines answers each line of in with a line on out, as soon as it is there.
func explainLines(in io.Reader, out io.Writer, policy *filerules.Policy) error {
	e := newExplainer(policy)
	r := bufio.NewReaderSize(in, maxCaseLine)
	asked, bad := 0, 0
	for {
		line, err := readLine(r)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil && !errors.Is(err, chat.ErrInvalid) {
			return fmt.Errorf("cannot read the cases: %w", err)
		}
		var a chat.Explained
		if err == nil {
			a, err = e.answer(line)
		}
		if asked++; err != nil {
			bad++
		}
		if err := writeLine(out, a, err); err != nil {
			return err
		}
	}
	if bad > 0 {
		return chat.Invalid("cannot answer %d of %d cases", bad, asked)
	}
	return nil
}

func (e *explainer) answer(line []byte) (chat.Explained, error) {
	q, err := parseCase(line)
	if err != nil {
		return chat.Explained{}, err
	}
	return e.ask(q)
}

// ask asks the rules, and the guard about a command.
func (e *explainer) ask(q explainCase) (chat.Explained, error) {
	rs, err := e.ruleset(q)
	if err != nil {
		return chat.Explained{}, err
	}
	a, err := q.ask(rs)
	if err != nil || q.Command == "" {
		return a, err
	}
	if e.noGuard != nil {
		return chat.Explained{}, e.noGuard
	}
	v, err := e.guard.Command(q.Command, guard.Place{Home: rs.Scope().Home, Cwd: rs.Scope().Cwd})
	if err != nil && a.Verdict == string(filerules.Deny) {
		return a, nil // by what was read before the mistake
	}
	a.Guard = v.Explained()
	return a, err
}

func (e *explainer) ruleset(q explainCase) (*filerules.Ruleset, error) {
	key := explainCase{Agent: q.Agent, Home: q.Home, Cwd: q.Cwd}
	rs := e.compiled[key]
	if rs == nil {
		var err error
		if rs, err = e.policy.For(q.scope()); err != nil {
			return nil, err
		}
		if len(e.compiled) == maxRulesets {
			clear(e.compiled)
		}
		e.compiled[key] = rs
	}
	return rs, nil
}

// readLine reads a line. One that is too long is read to its end and is invalid; any
// other error ends the reading.
func readLine(r *bufio.Reader) ([]byte, error) {
	line, err := r.ReadSlice('\n')
	if errors.Is(err, bufio.ErrBufferFull) {
		for errors.Is(err, bufio.ErrBufferFull) {
			_, err = r.ReadSlice('\n')
		}
		return nil, chat.Invalid("cannot read the case: want a line of at most %d bytes", maxCaseLine)
	}
	if err != nil && (len(line) == 0 || !errors.Is(err, io.EOF)) {
		return nil, err
	}
	return line, nil
}

func writeLine(w io.Writer, a chat.Explained, failed error) error {
	var v any = a
	if failed != nil {
		v = struct {
			Error string `json:"error"`
		}{failed.Error()}
	}
	return printer.JSONLine(w, v)
}
