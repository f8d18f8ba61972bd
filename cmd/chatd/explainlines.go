package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/chatd/chatd/access"
	"github.com/chatd/chatd/chat"
)

const (
	maxCaseLine = 1 << 20
	maxRulesets = 64 // kept compiled at once
)

// explainer answers cases, with the rules of each scope compiled once.
type explainer struct {
	policy   *access.Policy
	compiled map[explainCase]*access.Ruleset
}

// explainLines answers each line of in with a line on out, as soon as it is there.
func explainLines(in io.Reader, out io.Writer, policy *access.Policy) error {
	e := explainer{policy: policy, compiled: map[explainCase]*access.Ruleset{}}
	r, w := bufio.NewReaderSize(in, maxCaseLine), bufio.NewWriter(out)
	asked, bad := 0, 0
	for {
		line, err := readLine(r)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil && !errors.Is(err, chat.ErrInvalid) {
			return fmt.Errorf("cannot read the cases: %w", err)
		}
		var a explained
		if err == nil {
			a, err = e.answer(line)
		}
		if asked++; err != nil {
			bad++
		}
		if err := writeLine(w, a, err); err != nil {
			return err
		}
		if r.Buffered() > 0 {
			continue
		}
		if err := w.Flush(); err != nil {
			return fmt.Errorf("cannot write the output: %w", err)
		}
	}
	if err := w.Flush(); err != nil {
		return fmt.Errorf("cannot write the output: %w", err)
	}
	if bad > 0 {
		return fmt.Errorf("cannot answer %d of %d cases: %w", bad, asked, chat.ErrInvalid)
	}
	return nil
}

func (e *explainer) answer(line []byte) (explained, error) {
	q, err := parseCase(line)
	if err != nil {
		return explained{}, err
	}
	key := explainCase{Agent: q.Agent, Home: q.Home, Cwd: q.Cwd}
	rs := e.compiled[key]
	if rs == nil {
		if rs, err = e.policy.For(q.scope()); err != nil {
			return explained{}, err
		}
		if len(e.compiled) == maxRulesets {
			clear(e.compiled)
		}
		e.compiled[key] = rs
	}
	return q.ask(rs)
}

// readLine reads a line. One that is too long is read to its end and is invalid; any
// other error ends the reading.
func readLine(r *bufio.Reader) ([]byte, error) {
	line, err := r.ReadSlice('\n')
	if errors.Is(err, bufio.ErrBufferFull) {
		for errors.Is(err, bufio.ErrBufferFull) {
			_, err = r.ReadSlice('\n')
		}
		return nil, fmt.Errorf("cannot read the case: want a line of at most %d bytes: %w", maxCaseLine, chat.ErrInvalid)
	}
	if err != nil && (len(line) == 0 || !errors.Is(err, io.EOF)) {
		return nil, err
	}
	return line, nil
}

func writeLine(w io.Writer, a explained, failed error) error {
	var v any = a
	if failed != nil {
		v = struct {
			Error string `json:"error"`
		}{failed.Error()}
	}
	b, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("cannot write JSON: %w", err)
	}
	if _, err := w.Write(printable(b)); err != nil {
		return fmt.Errorf("cannot write the output: %w", err)
	}
	return nil
}
