package api

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/chatd/chatd/chat"
)

// kind is one row of the table of failures.
type kind struct {
	Word     string
	Sentinel error
	Status   int
}

// kinds is the one table: the word on the wire, the error of package chat, and the
// HTTP status. An error that is several of these is the first.
var kinds = []kind{
	{"invalid", chat.ErrInvalid, http.StatusBadRequest},
	{"denied", chat.ErrDenied, http.StatusForbidden},
	{"not_found", chat.ErrNotFound, http.StatusNotFound},
	{"exists", chat.ErrExists, http.StatusConflict},
	{"wrong_phase", chat.ErrWrongPhase, http.StatusConflict},
	{"conflict", chat.ErrConflict, http.StatusConflict},
	{"unsupported", chat.ErrUnsupported, http.StatusNotImplemented},
	{"busy", chat.ErrBusy, http.StatusServiceUnavailable},
}

var internal = kind{"internal", nil, http.StatusInternalServerError}

func kindOf(err error) kind {
	for _, k := range kinds {
		if errors.Is(err, k.Sentinel) {
			return k
		}
	}
	return internal
}

func kindByWord(word string) kind {
	for _, k := range kinds {
		if k.Word == word {
			return k
		}
	}
	return internal
}

// kindByStatus gives the kind of an answer that huma or net/http makes by itself.
func kindByStatus(status int) kind {
	switch {
	case status == http.StatusNotFound:
		return kindByWord("not_found")
	case status < http.StatusInternalServerError:
		return kindByWord("invalid")
	}
	return internal
}

// Kind is the stable word for err: invalid, denied, not_found, exists,
// wrong_phase, conflict, unsupported, busy or internal.
func Kind(err error) string { return kindOf(err).Word }

// ErrorOf is the error of a chatd program that exited with code and printed words.
func ErrorOf(code int, words string) error {
	for _, k := range kinds {
		if chat.ExitCode(k.Sentinel) == code {
			return newProblem(k, 0, words)
		}
	}
	return newProblem(internal, 0, words)
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
func (p *Problem) Unwrap() error { return kindByWord(p.Kind).Sentinel }

// GetStatus makes a Problem a huma.StatusError.
func (p *Problem) GetStatus() int { return p.Status }

// ContentType makes a Problem a huma.ContentTypeFilter.
func (p *Problem) ContentType(string) string { return problemType }

const (
	problemType = "application/problem+json"
	jsonType    = "application/json"
)

func newProblem(k kind, status int, detail string) *Problem {
	status = cmp.Or(status, k.Status)
	return &Problem{Type: "about:blank", Title: http.StatusText(status), Status: status, Detail: detail, Kind: k.Word}
}

// invalid is a problem of the request's form, with a status of its own.
func invalid(status int, field, format string, args ...any) *Problem {
	p := newProblem(kindByWord("invalid"), status, fmt.Sprintf(format, args...))
	p.Field = field
	return p
}

// init replaces huma's problem with chatd's, and matches field names exactly:
// {"external_id":…,"EXTERNAL_ID":…} must not be two spellings of one field. Both settings are
// global in huma.
func init() {
	huma.NewError = fromHuma
	huma.ValidateStrictCasing = true
}

// fromHuma omits the invalid values: they may be long, and the caller has them.
func fromHuma(status int, msg string, errs ...error) huma.StatusError {
	if status == http.StatusUnprocessableEntity {
		status = http.StatusBadRequest
	}
	field, why := "", []string{}
	for _, err := range errs {
		var d *huma.ErrorDetail
		if !errors.As(err, &d) {
			if err != nil {
				why = append(why, err.Error())
			}
			continue
		}
		at := strings.TrimPrefix(d.Location, "body.")
		field = cmp.Or(field, at)
		why = append(why, at+": "+d.Message)
	}
	detail := msg
	if len(why) > 0 {
		detail = strings.Join(why, "; ")
	}
	p := newProblem(kindByStatus(status), status, "cannot use the request: "+detail)
	p.Field = field
	return p
}
