package leftovers

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/chatd/chatd/scan"
	"github.com/chatd/chatd/trees"
)

const (
	// scanEvery is the time between the begins of two turns, and firstScan that after the start.
	scanEvery = time.Hour
	firstScan = 10 * time.Minute
	// turnEntries and turnSeconds bound a turn.
	turnEntries = 5_000_000
	turnSeconds = 20 * 60
	// rescanAfter is when a pass that found files is followed by another one: they may be gone.
	rescanAfter = 24 * time.Hour
	// maxLeft bounds the uids whose files are named, and maxNamed the files of each.
	maxLeft  = 100
	maxNamed = 5
	// maxPassFile bounds the file of a pass, in bytes.
	maxPassFile = 8 << 20
)

// Left is what a uid whose chat is gone has on the host. Paths are bytes: names of files.
type Left struct {
	UID   uint32 `json:"uid"`
	Chat  string `json:"chat,omitempty"` // empty if the audit log does not have it any more
	Files int    `json:"files"`          // at least: a directory may be counted again
	// First are paths of some of them, and Mounts where their file systems are mounted.
	First  [][]byte `json:"first"`
	Mounts [][]byte `json:"mounts"`
}

// ScannerOptions are how a [Scanner] acts.
type ScannerOptions struct {
	Walker
	// File is where the position and the finds are kept.
	File string
	// Spent returns the uids whose chats are gone.
	Spent func() []scan.Range
	// Before is called before each turn, also if none is due.
	Before func()
	// Chats names the chats that had the uids.
	Chats func(context.Context, []uint32) (map[uint32]string, error)
	// Report is told of files that the last pass did not find, or of fewer.
	Report func(Left)
	// Every is the time between two turns; 0 is an hour.
	Every time.Duration
	// Under, if it is not empty, are the only mounts to look at.
	Under []string
	Log   *slog.Logger
}

// Scanner looks on all local file systems for files of uids whose chats are gone: one pass for all
// chats that were reaped since the last, in as many turns as it takes.
type Scanner struct {
	opt  ScannerOptions
	turn sync.Mutex // held while the process of a turn is there

	mu    sync.Mutex
	state pass
	fault error // of the last turn
}

// pass is what is kept over a restart.
type pass struct {
	// Spent is how many uids were spent when the pass began.
	Spent int            `json:"spent"`
	Begun time.Time      `json:"begun"`
	Ended time.Time      `json:"ended,omitzero"` // of the last one that is complete
	At    *scan.Position `json:"at,omitempty"`   // nil between two passes
	Found []Left         `json:"found,omitempty"`
	// More counts the finds of uids beyond maxLeft, and Unseen the directories that were left out.
	More   int    `json:"more,omitempty"`
	Unseen int    `json:"unseen,omitempty"`
	Why    string `json:"why,omitempty"`
	// Left is what the last complete pass found.
	Left []Left `json:"left,omitempty"`
}

// NewScanner returns a scanner that goes on where the file says.
func NewScanner(o ScannerOptions) *Scanner {
	s := &Scanner{opt: o}
	b, err := trees.ReadPrivate(o.File, maxPassFile)
	if err == nil {
		err = json.Unmarshal(b, &s.state)
	}
	if err != nil {
		s.state = pass{} // it begins anew
		if !errors.Is(err, fs.ErrNotExist) {
			o.Log.Warn("the scan for files of reaped chats begins anew", "why", err)
		}
	}
	return s
}

// Run looks until ctx ends.
func (s *Scanner) Run(ctx context.Context) {
	every := cmp.Or(s.opt.Every, scanEvery)
	next := time.NewTimer(min(every, firstScan))
	defer next.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-next.C:
			s.opt.Before()
			s.Look(ctx)
			next.Reset(every)
		}
	}
}

// Try starts the walker with nothing to look for, and keeps what fails for [Scanner.Fault].
func (s *Scanner) Try(ctx context.Context) {
	if s.turn.TryLock() {
		req := scan.Request{Under: []string{""}, Seconds: 1}
		_, err := s.opt.turn(ctx, req, func(scan.Find) {}, s.turn.Unlock)
		s.setFault(err)
	}
}

// Look is one turn, if one is due.
func (s *Scanner) Look(ctx context.Context) {
	if !s.turn.TryLock() {
		return // one hangs
	}
	spent := s.opt.Spent()
	if !s.due(spent) {
		s.turn.Unlock()
		return
	}
	p := s.current()
	req := scan.Request{
		Spent: spent, From: p.At, Entries: turnEntries, Seconds: turnSeconds, Under: s.opt.Under,
	}
	end, err := s.opt.turn(ctx, req, p.add, s.turn.Unlock)
	if ctx.Err() != nil {
		return // chatd ends; the next one goes on at the same position
	}
	s.setFault(err)
	hung := errors.Is(err, errStuck) || errors.Is(err, context.DeadlineExceeded)
	if err != nil && !hung {
		return
	}
	s.tell(ctx, &p)
	p.goOn(req.From, end)
	s.put(p)
	if p.At != nil {
		s.opt.Log.Info("the scan for files of reaped chats is not finished",
			"at", string(p.At.Mount), "looked_at", end.Entries)
		return
	}
	s.opt.Log.Info("the scan for files of reaped chats is finished", "uids", p.Spent,
		"left", len(p.Left), "not_seen", p.Unseen, "why", p.Why, "missing", end.Missing)
}

// due begins a pass where one is due, and reports whether there is one under way.
func (s *Scanner) due(spent []scan.Range) bool {
	n := 0
	for _, r := range spent {
		n += int(r[1]-r[0]) + 1
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	p := &s.state
	switch {
	case n == 0:
		return false
	case p.At != nil:
		return true
	case n == p.Spent && (len(p.Left) == 0 || time.Since(p.Ended) < rescanAfter):
		return false
	}
	*p = pass{Spent: n, Begun: time.Now().UTC(), Ended: p.Ended, Left: p.Left}
	return true
}

func (s *Scanner) current() pass {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.state
	p.Found = slices.Clone(p.Found)
	return p
}

// put keeps a pass. One that cannot be written is lost with this process.
func (s *Scanner) put(p pass) {
	s.mu.Lock()
	s.state = p
	s.mu.Unlock()
	b, err := json.Marshal(p)
	if err == nil {
		err = trees.ReplaceFile(s.opt.File, b, 0o600)
	}
	if err != nil {
		s.opt.Log.Warn("cannot keep how far the scan came", "error", err)
	}
}

// tell reports what was not found before, or less of it.
func (s *Scanner) tell(ctx context.Context, p *pass) {
	var uids []uint32
	for _, l := range p.Found {
		if l.Chat == "" {
			uids = append(uids, l.UID)
		}
	}
	if len(uids) > 0 {
		chats, err := s.opt.Chats(ctx, uids)
		if err != nil {
			s.opt.Log.Warn("cannot tell which chats had the files that were found", "error", err)
		}
		for i := range p.Found {
			p.Found[i].Chat = cmp.Or(p.Found[i].Chat, chats[p.Found[i].UID])
		}
	}
	before := s.current()
	for _, l := range p.Found {
		if l.Files > max(filesOf(before.Left, l.UID), filesOf(before.Found, l.UID)) {
			s.opt.Report(l)
		}
	}
}

func filesOf(all []Left, uid uint32) int {
	if i := slices.IndexFunc(all, func(l Left) bool { return l.UID == uid }); i >= 0 {
		return all[i].Files
	}
	return 0
}

func (s *Scanner) setFault(err error) {
	if errors.Is(err, context.Canceled) {
		return // chatd ends
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fault = err; err != nil {
		s.opt.Log.Warn("the scan for files of reaped chats failed", "error", err)
	}
}

// Left is what was found: by the last complete pass, and by the one that is under way.
func (s *Scanner) Left() (left []Left, more int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	left = slices.Clone(s.state.Left)
	for _, l := range s.state.Found {
		if filesOf(left, l.UID) == 0 {
			left = append(left, l)
		}
	}
	return left, s.state.More
}

// Fault is why the last turn failed; nil if it did not.
func (s *Scanner) Fault() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fault == nil {
		return nil
	}
	return fmt.Errorf("cannot scan for files of reaped chats: %w", s.fault)
}
