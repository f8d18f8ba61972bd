package client

import (
	"cmp"
	"errors"
	"net/http"
	"strconv"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/filewire"
	"github.com/chatd/chatd/internal/quota"
)

// ErrorKind is one row of the table of failures.
type ErrorKind struct {
	Word     string
	Sentinel error
	Status   int
}

// Kinds is the one table: the word on the wire, the error of package chat, and the
// HTTP status. An error that is several of these is the first.
var Kinds = []ErrorKind{
	{"invalid", chat.ErrInvalid, http.StatusBadRequest},
	{"denied", chat.ErrDenied, http.StatusForbidden},
	{"not_found", chat.ErrNotFound, http.StatusNotFound},
	{"exists", chat.ErrExists, http.StatusConflict},
	{"wrong_phase", chat.ErrWrongPhase, http.StatusConflict},
	{"conflict", chat.ErrConflict, http.StatusConflict},
	{"unsupported", chat.ErrUnsupported, http.StatusNotImplemented},
	{"busy", chat.ErrBusy, http.StatusServiceUnavailable},
}

// internal is the kind of every other error.
var internal = ErrorKind{"internal", nil, http.StatusInternalServerError}

// KindOf is the first kind that err is.
func KindOf(err error) ErrorKind {
	for _, k := range Kinds {
		if errors.Is(err, k.Sentinel) {
			return k
		}
	}
	return internal
}

// KindNamed is the kind of a word on the wire.
func KindNamed(word string) ErrorKind {
	for _, k := range Kinds {
		if k.Word == word {
			return k
		}
	}
	return internal
}

// Kind is the stable word for err: invalid, denied, not_found, exists,
// wrong_phase, conflict, unsupported, busy or internal.
func Kind(err error) string { return KindOf(err).Word }

// ErrorOf is the error of a chatd program that exited with code and printed words.
func ErrorOf(code int, words string) error {
	for _, k := range Kinds {
		if chat.ExitCode(k.Sentinel) == code {
			return NewProblem(k, 0, words)
		}
	}
	return NewProblem(internal, 0, words)
}

// Problem is an error on the wire: RFC 9457 with the extension members kind, field, ref, and of a
// denied file op, path, rule, place and layer. It unwraps to the error of package chat that its
// kind names.
type Problem struct {
	// Type is about:blank; Kind tells problems apart.
	Type string `json:"type" doc:"Always about:blank; see kind."`
	// Title is the status in words.
	Title  string `json:"title" doc:"The status in words."`
	Status int    `json:"status" doc:"The HTTP status."`
	// Detail is one sentence for people.
	Detail string `json:"detail" doc:"What could not be done and why."`
	// Kind is what a program may branch on.
	Kind string `json:"kind" enum:"invalid,denied,not_found,exists,wrong_phase,conflict,unsupported,busy,internal" doc:"What a program may branch on."`
	// Field is where in the request it went wrong, when that is known.
	Field string `json:"field,omitempty" doc:"Where in the request it went wrong, when that is known."`
	// Op, Path, Rule, Place and Layer say what the file rules, or the file tools, deny.
	Op    string `json:"op,omitempty" doc:"Of a file that is denied: the operation."`
	Path  string `json:"path,omitempty" doc:"Of a file that is denied: the name that was checked."`
	Rule  string `json:"rule,omitempty" doc:"The rule that denies it."`
	Place string `json:"place,omitempty" doc:"File and line of the rule."`
	Layer string `json:"layer,omitempty" doc:"The part of the policy, or the wall, that denies it."`
	// Share is what the caller's owner has used up of what owners share.
	Share string `json:"share,omitempty" doc:"Of a share that is used up: its key in chatd's config."`
	// Ref finds an internal error in the daemon's log.
	Ref string `json:"ref,omitempty" doc:"Finds an internal error in the daemon's log."`
	// noRetry is set where waiting does not help; retry is in seconds, if more than one.
	noRetry bool
	retry   int
}

// Error is the detail.
func (p *Problem) Error() string { return p.Detail }

// Unwrap is the error of package chat; nil for an internal one.
func (p *Problem) Unwrap() error { return KindNamed(p.Kind).Sentinel }

// GetStatus makes a Problem a huma.StatusError.
func (p *Problem) GetStatus() int { return p.Status }

// ContentType makes a Problem a huma.ContentTypeFilter.
func (p *Problem) ContentType(string) string { return ProblemType }

// NewProblem is a problem with the status of its kind, unless another is given.
func NewProblem(k ErrorKind, status int, detail string) *Problem {
	status = cmp.Or(status, k.Status)
	return &Problem{Type: "about:blank", Title: http.StatusText(status), Status: status, Detail: detail,
		Kind: k.Word}
}

// Of adds what err says beyond its words: the rule that denies a file, or the share that is used up
// and when time frees some of it.
func (p *Problem) Of(err error) *Problem {
	if d, ok := errors.AsType[*filewire.Denial](err); ok && p.Kind == "denied" {
		p.Op, p.Path, p.Rule, p.Place, p.Layer = string(d.Op), d.Path, d.Rule, d.Place, d.Layer
	}
	if e, ok := errors.AsType[*quota.SpentError](err); ok {
		p.Share, p.retry, p.noRetry = e.Share.Key(), e.Seconds(), e.After == 0
	}
	return p
}

// GetHeaders makes a Problem a huma.HeadersError: Retry-After of a busy answer, unless waiting does
// not help.
func (p *Problem) GetHeaders() http.Header {
	h := http.Header{}
	if p.Status == http.StatusServiceUnavailable && !p.noRetry {
		h.Set("Retry-After", strconv.Itoa(max(1, p.retry)))
	}
	return h
}
