package broker

import (
	"context"
	"errors"

	"github.com/chatd/chatd/chat"
)

// ErrUnreached is a call that chatd-root did not take, or did not answer to its end.
var ErrUnreached = errors.New("cannot reach chatd-root")

// Root is what the front asks for. provision.Manager does it, and [Client] passes it to
// chatd-root. The front reads commands and schedules, so Root has runs whose paths are found
// ([chat.RunSpec].Named), questions likewise, and times that have come.
type Root interface {
	Base
	// Terms are what the front judges the commands of a chat by.
	Terms(ctx context.Context, id chat.ID) (chat.Terms, error)
	// RefuseRun writes to the audit log that the front refused a run.
	RefuseRun(ctx context.Context, id chat.ID, r chat.RefusedRun) error
	// PutSchedule keeps a schedule of the caller's.
	PutSchedule(ctx context.Context, id chat.ID, n chat.NewSchedule) (chat.Schedule, error)
	// KeptSchedules gives the schedules of all chats to out, and KeptSchedule is one of them.
	KeptSchedules(ctx context.Context, out func(chat.StoredSchedule) error) error
	KeptSchedule(ctx context.Context, id chat.ID, schedule string) (chat.StoredSchedule, error)
	// BeginDue takes a time that has come and begins its run, as the caller who made the schedule.
	// Where running is false, the result is written down already.
	BeginDue(ctx context.Context, d chat.DueSchedule) (running bool, err error)
	// AwaitDue returns when the result of that run is written down, or with ctx: the run goes on.
	AwaitDue(ctx context.Context, d chat.DueSchedule) error
	// AddSkipped adds d.Skipped to what is written down.
	AddSkipped(ctx context.Context, d chat.DueSchedule) error
}
