package layers

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/chatd/chatd/chat"
)

// triedTimeout is how long a caller waits for the first probe, about a second on an idle host,
// before its call fails as busy.
const triedTimeout = 2 * time.Second

// OwnDirectories is the subject of SetPrepared's errors, here and in findings.
const OwnDirectories = "chatd's own directories"

// required returns the layers in the given state that config does not excuse.
func (s *Set) required(state chat.LayerState) []chat.Layer {
	return slices.DeleteFunc(s.Host(), func(l chat.Layer) bool {
		return l.State != state || slices.Contains(s.opt.AllowMissing, l.Name) || s.Without(l.Name)
	})
}

// Missing returns the layers that are off and not excused, outermost first; it is never nil. An
// unknown one is not missing.
func (s *Set) Missing() []chat.LayerName {
	missing := []chat.LayerName{}
	for _, l := range s.required(chat.LayerOff) {
		missing = append(missing, l.Name)
	}
	return missing
}

// Require refuses to serve on a host that lacks a wall, unless it was excused: the error is
// [chat.ErrUnsupported], with a fix for each.
func (s *Set) Require() error {
	missing := s.required(chat.LayerOff)
	if len(missing) == 0 {
		return nil
	}
	var lines []string
	for _, l := range missing {
		lines = append(lines, fmt.Sprintf("\n  %s: %s\n    fix: %s", l.Name, l.Probe, l.Fix))
	}
	return fmt.Errorf("cannot serve: %d required layers are missing "+
		"(--allow-missing=NAME excuses one):%s\n%w",
		len(missing), strings.Join(lines, ""), chat.ErrUnsupported)
}

// SetPrepared records whether chatd's own directories exist: err is the reason why not. Until they
// exist, the host is not fit.
func (s *Set) SetPrepared(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unprepared = err
}

// Unprepared is the last error of SetPrepared.
func (s *Set) Unprepared() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.unprepared
}

// checkFit sets fit if the probe found every required layer in force.
func (s *Set) checkFit() {
	if len(s.required(chat.LayerUnknown)) > 0 || len(s.Missing()) > 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fit = s.fit || s.unprepared == nil
}

// Fit reports whether a probe has found each required layer in force since chatd was started. A
// later probe does not change that: on a host whose disk is full now, the living sessions began
// behind walls that were in force.
func (s *Set) Fit() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.fit
}

// Unfit says why the host is not fit: it names the missing layers or, if there is none, the
// unknown ones.
func (s *Set) Unfit() string {
	if missing := s.Missing(); len(missing) > 0 {
		return "required layers are missing: " + join(missing)
	}
	var why []string
	for _, l := range s.required(chat.LayerUnknown) {
		why = append(why, fmt.Sprintf("%s (%s; %s)", l.Name, l.Probe, l.Fix))
	}
	if err := s.Unprepared(); err != nil {
		why = append(why, fmt.Sprintf("%s (%s)", OwnDirectories, err))
	}
	return "chatd cannot tell whether these hold: " + strings.Join(why, ", ")
}

func join(names []chat.LayerName) string {
	var s []string
	for _, n := range names {
		s = append(s, string(n))
	}
	return strings.Join(s, ", ")
}

// EndTrying ends the time of the first probe: nothing more is excused, and Await waits no longer.
func (s *Set) EndTrying() { s.endTrying() }

// Tried reports whether EndTrying was called.
func (s *Set) Tried() bool { return s.tried.Err() != nil }

// Await waits a moment for the first probe, and returns nil if the host is fit. Its error is
// [chat.ErrUnsupported] if required layers are missing, and [chat.ErrBusy] if some are unknown.
func (s *Set) Await(ctx context.Context) error {
	if s.Fit() {
		return nil
	}
	select {
	case <-s.tried.Done():
	case <-time.After(triedTimeout):
		return fmt.Errorf("cannot begin anything yet: chatd has just started and is still trying "+
			"its walls; ask again in a moment: %w", chat.ErrBusy)
	case <-ctx.Done():
		return fmt.Errorf("cannot wait until the walls are tried: %w: %w",
			context.Cause(ctx), chat.ErrBusy)
	}
	switch {
	case s.Fit():
		return nil
	case len(s.Missing()) > 0:
		return fmt.Errorf("cannot begin anything: %s: see chatd doctor: %w",
			s.Unfit(), chat.ErrUnsupported)
	}
	return fmt.Errorf("cannot begin anything: %s: %w", s.Unfit(), chat.ErrBusy)
}
