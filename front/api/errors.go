package api

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/chatd/chatd/client"
)

// kindByStatus gives the kind of an answer that huma or net/http makes by itself.
func kindByStatus(status int) client.ErrorKind {
	switch {
	case status == http.StatusNotFound:
		return client.KindNamed("not_found")
	case status < http.StatusInternalServerError:
		return client.KindNamed("invalid")
	}
	return client.KindNamed("internal")
}

// invalid is a problem of the request's form, with a status of its own.
func invalid(status int, field, format string, args ...any) *client.Problem {
	p := client.NewProblem(client.KindNamed("invalid"), status, fmt.Sprintf(format, args...))
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
		d, ok := errors.AsType[*huma.ErrorDetail](err)
		if !ok {
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
	p := client.NewProblem(kindByStatus(status), status, "cannot use the request: "+detail)
	p.Field = field
	return p
}
