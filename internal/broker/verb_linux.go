package broker

import (
	"context"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/verbs"
)

// handlers are all verbs that a front may call, by name: those of the table that chatd-root serves,
// and what the front alone asks.
var handlers = tableHandlers()

func tableHandlers() map[string]verbs.Handler[*call] {
	all := map[string]verbs.Handler[*call]{}
	for _, row := range verbs.Table {
		if row.Do != nil {
			all[row.Name] = func(ctx context.Context, c *call, id chat.ID,
				read func(any) error) (any, error) {
				return row.Do(ctx, c, id, read)
			}
		}
	}
	return all
}

// verb adds a verb that the table does not have for chatd-root. A call has all methods of its
// [verbs.Root].
func verb[A, R any](name string, do verbs.Method[*call, A, R]) verbs.Verb[A, R] {
	handlers[name] = verbs.Bind(do)
	return verbs.Verb[A, R](name)
}
