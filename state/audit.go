package state

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/chatd/chatd/chat"
)

// Bounds of one event in the log; longer parts are cut, and marked as cut.
const (
	maxWord   = 64   // bytes of an action, an outcome, a detail's key
	maxValue  = 1024 // bytes of any other string
	maxDetail = 32   // entries
	maxArgv   = 8192 // bytes of a command line
	maxArgs   = 256  // of its arguments
)

// Event is one audited act: its caller, its action, its chat and its outcome.
type Event struct {
	// Action is the verb of the CLI and API: create, wake, sleep, reap, run, input.
	Action string
	// Outcome is intent before the act, then done or failed; denied when there was none.
	Outcome string
	Chat    chat.ID
	UID     uint32
	Caller  chat.Caller
	// Argv is the command line that the act is about, if it is about one. It is cut to 256
	// arguments and 8 KiB.
	Argv []string
	// Detail is cut to 32 entries of 1 KiB each. It never holds a chat's input or output.
	Detail map[string]string
}

func (e Event) check() error {
	if e.Action == "" || e.Outcome == "" {
		return chat.Invalid("cannot audit an event without action and outcome")
	}
	return nil
}

func (e Event) about(r *Record) Event {
	e.Chat, e.UID = r.ID, r.UID
	return e
}

// line is one line of audit.jsonl. In the outbox Seq and Prev are empty: they are set when the line
// is written.
type line struct {
	Seq     uint64            `json:"seq"`
	Time    string            `json:"time"` // RFC 3339 with nanoseconds, UTC
	Tx      uint64            `json:"tx,omitempty"`
	Action  string            `json:"action"`
	Outcome string            `json:"outcome"`
	Chat    chat.ID           `json:"chat,omitempty"`
	UID     uint32            `json:"uid,omitempty"`
	Caller  chat.Caller       `json:"caller"`
	Argv    []string          `json:"argv,omitempty"`
	ArgvCut int               `json:"argv_cut,omitempty"` // bytes of the command line that are left out
	Detail  map[string]string `json:"detail,omitempty"`
	Prev    string            `json:"prev"` // hex sha256 of the line before, without its newline
}

func (e Event) line(now time.Time, tx uint64) line {
	l := line{
		Time: now.UTC().Format(time.RFC3339Nano), Tx: tx,
		Action: cut(e.Action, maxWord), Outcome: cut(e.Outcome, maxWord),
		Chat: chat.ID(cut(string(e.Chat), maxWord)), UID: e.UID,
		Caller: chat.Caller{Name: cut(e.Caller.Name, maxValue), UID: e.Caller.UID,
			Role: chat.Role(cut(string(e.Caller.Role), maxWord))},
	}
	l.Argv, l.ArgvCut = cutArgv(e.Argv)
	for i, k := range slices.Sorted(maps.Keys(e.Detail)) {
		if l.Detail == nil {
			l.Detail = make(map[string]string, len(e.Detail))
		}
		if i == maxDetail {
			l.Detail["…"] = strconv.Itoa(len(e.Detail)-maxDetail) + " more"
			break
		}
		l.Detail[cut(k, maxWord)] = cut(e.Detail[k], maxValue)
	}
	return l
}

func cut(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	for limit > 0 && !utf8.RuneStart(s[limit]) {
		limit--
	}
	return s[:limit] + "…"
}

// cutArgv returns the part of a command line that is kept, and how many bytes are left out.
func cutArgv(argv []string) (kept []string, left int) {
	room := maxArgv
	for i, arg := range argv {
		if i >= maxArgs || room == 0 {
			left += len(arg)
			continue
		}
		whole := arg
		if len(arg) > room {
			arg = cut(arg, room)
			left += len(whole) - len(strings.TrimSuffix(arg, "…"))
			room = 0
		} else {
			room -= len(arg)
		}
		kept = append(kept, arg)
	}
	return kept, left
}

// encode returns the line in ASCII without a newline, so that no control byte, separator or change
// of direction in a caller's text reaches a terminal.
func (l line) encode() ([]byte, error) {
	b, err := json.Marshal(l)
	if err != nil {
		return nil, err
	}
	out := make([]byte, 0, len(b)+1)
	for _, r := range string(b) { // JSON from Marshal is valid UTF-8
		switch {
		case r < 0x7f:
			out = append(out, byte(r))
		case r < 0x10000:
			out = fmt.Appendf(out, `\u%04x`, r)
		default:
			out = fmt.Appendf(out, `\u%04x\u%04x`, 0xd800+(r-0x10000)>>10, 0xdc00+(r-0x10000)&0x3ff)
		}
	}
	return out, nil
}

// auditLog is the open audit.jsonl.
type auditLog struct {
	mu      sync.Mutex
	file    *os.File
	head    head   // the last line that is written
	onDisk  head   // the last head that is in the database
	pending []line // committed to the outbox, not written yet
	torn    bool   // bytes of a failed write may lie behind head.Offset
	room    reserve
	refuses error // why nothing is written; nil while lines are
}

// head names the last line of the log.
type head struct {
	Seq    uint64 `json:"seq"`
	Hash   string `json:"hash"`   // hex sha256 of the line
	Offset int64  `json:"offset"` // bytes of the file up to and with its newline
	Tx     uint64 `json:"tx"`     // the highest tx written so far

	// The last line before this log's first: of the log before, or none.
	BaseSeq  uint64 `json:"base_seq,omitempty"`
	BaseHash string `json:"base_hash,omitempty"`
}

// Audit appends one event. It is in the file when Audit returns and on the disk within about a
// second; on an error the caller must not perform the act.
func (s *Store) Audit(e Event) error {
	if err := errors.Join(e.check(), s.mayBegin(e)); err != nil {
		return err
	}
	if err := s.log.append(e.line(s.opts.Now(), 0)); err != nil {
		return err
	}
	s.stirUp()
	return nil
}

func (a *auditLog) append(l line) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if err := a.drainLocked(); err != nil {
		return err
	}
	return a.write(l)
}

// post queues committed lines, if any, and writes as many as it can.
func (a *auditLog) post(lines []line) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.pending = append(a.pending, lines...)
	return a.drainLocked()
}

func (a *auditLog) drainLocked() error {
	for len(a.pending) > 0 {
		if err := a.write(a.pending[0]); err != nil {
			return err
		}
		a.pending = a.pending[1:]
	}
	a.pending = nil
	return nil
}

// write appends one line with one write(2), and truncates what a failed write left.
func (a *auditLog) write(l line) error {
	if a.refuses != nil {
		return a.refuses
	}
	if err := a.mend(); err != nil {
		return err
	}
	l.Seq, l.Prev = a.head.Seq+1, a.head.Hash
	b, err := l.encode()
	if err != nil {
		return fmt.Errorf("cannot write audit log %s: %w", a.file.Name(), err)
	}
	hash := hashLine(b)
	b = append(b, '\n')
	if _, err := a.file.Write(b); err != nil {
		a.torn = true
		return errors.Join(fmt.Errorf("cannot write audit log: %w", err), a.mend())
	}
	a.head.Seq, a.head.Hash = l.Seq, hash
	a.head.Offset, a.head.Tx = a.head.Offset+int64(len(b)), max(a.head.Tx, l.Tx)
	a.room.ahead(a.file, a.head.Offset, auditReserve)
	return nil
}

func (a *auditLog) mend() error {
	if !a.torn {
		return nil
	}
	a.room = reserve{} // truncating the file frees the reserved blocks
	if err := a.file.Truncate(a.head.Offset); err != nil {
		return fmt.Errorf("cannot cut a half-written line off the audit log: %w", err)
	}
	a.torn = false
	return nil
}

// sync makes the file durable up to the head it returns; moved says whether the
// database still names an earlier one. Lines may be appended meanwhile.
func (a *auditLog) sync() (h head, moved bool, err error) {
	a.mu.Lock()
	h, moved = a.head, a.head != a.onDisk
	a.mu.Unlock()
	if !moved {
		return h, false, nil
	}
	if err := a.file.Sync(); err != nil {
		return h, false, fmt.Errorf("cannot sync audit log: %w", err)
	}
	return h, true, nil
}

func (a *auditLog) kept(h head) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.onDisk = h
}

func (a *auditLog) close() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.file.Close()
}
