package api

import (
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strconv"

	"github.com/danielgtaylor/huma/v2"

	"github.com/chatd/chatd/chat"
)

// contentQuery are the parameters of a stream.
type contentQuery struct {
	name, kind, doc string
	get, put        bool
}

var contentQueries = []contentQuery{
	{"path", "string", "The file, absolute or below the home.", true, true},
	{"offset", "integer", "The first byte.", true, false},
	{"length", "integer", "So many bytes; all if absent.", true, false},
	{"line", "integer", "The first line, counted from 1.", true, false},
	{"lines", "integer", "So many lines.", true, false},
	{"append", "boolean", "Add to the end in place of replacing the file.", false, true},
	{"hash", "boolean", "Answer the SHA-256 too.", true, true},
}

func describeQuery(op *huma.Operation, has func(contentQuery) bool) {
	op.Parameters = append(op.Parameters, chatParam)
	for _, q := range contentQueries {
		if has(q) {
			p := param("query", q.name, q.kind, q.doc)
			p.Required = q.name == "path"
			op.Parameters = append(op.Parameters, p)
		}
	}
}

// parameters are a query's, by kind.
type parameters struct {
	text   map[string]string
	number map[string]int64
	flag   map[string]bool
}

// contentOf reads the chat and the query. checkQuery has seen that each is there once.
func contentOf(r *http.Request, has func(contentQuery) bool) (chat.ID, parameters, error) {
	p := parameters{map[string]string{}, map[string]int64{}, map[string]bool{}}
	id, err := chat.ParseID(r.PathValue("id"))
	if err != nil {
		return id, p, err
	}
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return id, p, invalid(http.StatusBadRequest, "query", "cannot use the query: %v", err)
	}
	for name := range query {
		i := slices.IndexFunc(contentQueries, func(q contentQuery) bool { return q.name == name && has(q) })
		if i < 0 {
			return id, p, invalid(http.StatusBadRequest, "query", "cannot use the query: unknown parameter %s", chat.Quote(name))
		}
		if err := p.set(contentQueries[i], query.Get(name)); err != nil {
			return id, p, err
		}
	}
	return id, p, nil
}

func (p parameters) set(q contentQuery, value string) error {
	var err error
	switch q.kind {
	case "integer":
		p.number[q.name], err = strconv.ParseInt(value, 10, 64)
	case "boolean":
		if p.flag[q.name] = value == "true"; value != "true" && value != "false" {
			err = errors.New("want true or false")
		}
	default:
		p.text[q.name] = value
	}
	if err != nil {
		return invalid(http.StatusBadRequest, q.name, "cannot use %s %s: want %s", q.name, chat.Quote(value), map[string]string{"integer": "a number", "boolean": "true or false"}[q.kind])
	}
	return nil
}
