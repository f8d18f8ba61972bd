package verbs

import (
	"context"
	"reflect"
	"slices"

	"github.com/chatd/chatd/chat"
)

// Access names the callers that may use a verb.
type Access string

const (
	Anyone    Access = "anyone"    // every peer that the socket's mode lets connect
	Bridges   Access = "bridges"   // bridges and operators
	Operators Access = "operators" // operators only
)

// Admits reports whether a caller of this role may use the verb.
func (a Access) Admits(role chat.Role) bool {
	switch a {
	case Anyone:
		return true
	case Bridges:
		return role == chat.RoleBridge || role == chat.RoleOperator
	}
	return role == chat.RoleOperator
}

// Body is what a request carries.
type Body string

const (
	Nothing Body = "nothing"
	JSON    Body = "JSON"  // read, bounded and checked before anything else looks at it
	Bytes   Body = "bytes" // streamed: its handler reads it
)

// Route is what the API says of a verb. Name is also the id of the operation in OpenAPI and the verb
// on the socket to chatd-root. Status is the usual answer's, and Help describes the verb.
type Route struct {
	Name, Method, Path string
	Access             Access
	Body               Body
	Status             int
	Help               string
}

// Pattern is the route as [net/http.ServeMux] takes it.
func (r Route) Pattern() string { return r.Method + " " + r.Path }

// Row is one verb of the table.
type Row struct {
	Route
	// Types are the types of the body and of the answer; nil means that there is none.
	Types func() (args, answer reflect.Type)
	// Do serves the verb in chatd-root, and in the front unless Front is set.
	Do Handler[Base]
	// Front serves the verb in the front. Without Do, chatd-root does not know the verb by the table.
	Front Handler[Chats]
}

// AtFront serves the verb in the front.
func (r Row) AtFront(ctx context.Context, c Chats, id chat.ID, read func(args any) error) (any, error) {
	if r.Front != nil {
		return r.Front(ctx, c, id, read)
	}
	return r.Do(ctx, c, id, read)
}

// Table has all verbs of the API. add appends those that chatd-root serves as the front passes them on.
var Table = slices.Concat(lifeRows, runRows, scheduleRows, terminalRows, fileRows, hostRows)

// Find returns the row of a verb.
func Find(name string) (Row, bool) {
	i := slices.IndexFunc(Table, func(r Row) bool { return r.Name == name })
	if i < 0 {
		return Row{}, false
	}
	return Table[i], true
}

// add adds a verb that chatd-root serves, and that the front passes on.
func add[A, R any](r Route, do Method[Base, A, R]) Verb[A, R] {
	Table = append(Table, Row{Route: r, Types: typesOf[A, R], Do: Bind(do)})
	return Verb[A, R](r.Name)
}

// typesOf are the types of the body for arguments A, and of answer R. A name is no part of a body.
func typesOf[A, R any]() (args, answer reflect.Type) {
	var a A
	switch any(a).(type) {
	case None, string, chat.ArchiveName:
	default:
		args = reflect.TypeFor[A]()
	}
	if answer = reflect.TypeFor[R](); answer == reflect.TypeFor[None]() {
		answer = nil
	}
	return args, answer
}
