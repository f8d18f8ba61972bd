package broker

import (
	"context"

	"github.com/chatd/chatd/chat"
)

// Calls makes one call of a verb, and so is every method of [Base] whose arguments and answer are
// alike over the control socket ([Client]) and over the API (package api's client). The verb is the
// name of the API's route. answer is nil for an answer that says only that the call succeeded.
type Calls func(ctx context.Context, verb string, id chat.ID, args, answer any) error

// List returns one page of the caller's chats.
func (c Calls) List(ctx context.Context, f chat.Filter) (chat.Page, error) {
	return list.call(ctx, c, "", f)
}

// Get returns one chat as it is now.
func (c Calls) Get(ctx context.Context, id chat.ID) (chat.Chat, error) { return get.call(ctx, c, id) }

// Reap ends a chat and removes every trace of it.
func (c Calls) Reap(ctx context.Context, id chat.ID) error { return reap.order(ctx, c, id, nothing{}) }

// Wake starts a chat's session if it has none.
func (c Calls) Wake(ctx context.Context, id chat.ID) (chat.Chat, error) { return wake.call(ctx, c, id) }

// Sleep ends a chat's processes and keeps its home.
func (c Calls) Sleep(ctx context.Context, id chat.ID) (chat.Chat, error) {
	return sleep.call(ctx, c, id)
}

// Freeze stops an awake chat's processes, which keep their memory.
func (c Calls) Freeze(ctx context.Context, id chat.ID) (chat.Chat, error) {
	return freeze.call(ctx, c, id)
}

// Thaw lets the processes of a frozen chat go on.
func (c Calls) Thaw(ctx context.Context, id chat.ID) (chat.Chat, error) { return thaw.call(ctx, c, id) }

// Archive archives a chat, and reaps it unless how.Keep. It may take hours, and ends with ctx.
func (c Calls) Archive(ctx context.Context, id chat.ID, how chat.ToArchive) (chat.Archive, error) {
	return archive.call(ctx, c, id, how)
}

// VerifyArchive reads an archive. It may take hours.
func (c Calls) VerifyArchive(ctx context.Context, name chat.ArchiveName) (chat.ArchiveCheck, error) {
	return verifyArchive.call(ctx, c, "", name)
}

// Unarchive makes the chat of an archive again. It may take hours, and ends with ctx.
func (c Calls) Unarchive(ctx context.Context, name chat.ArchiveName) (chat.Chat, error) {
	return unarchive.call(ctx, c, "", name)
}

// RemoveArchive removes an archive for ever.
func (c Calls) RemoveArchive(ctx context.Context, name chat.ArchiveName) error {
	return removeArchive.order(ctx, c, "", name)
}

// Runs lists the runs in progress and the background runs that are kept.
func (c Calls) Runs(ctx context.Context, id chat.ID) (chat.Runs, error) { return runs.call(ctx, c, id) }

// Processes lists all processes in a chat.
func (c Calls) Processes(ctx context.Context, id chat.ID) (chat.Processes, error) {
	return processes.call(ctx, c, id)
}

// EndRun ends a run and returns when none of its processes is left.
func (c Calls) EndRun(ctx context.Context, id chat.ID, run string) error {
	return endRun.order(ctx, c, id, run)
}

// Schedules lists a chat's schedules.
func (c Calls) Schedules(ctx context.Context, id chat.ID) (chat.Schedules, error) {
	return schedules.call(ctx, c, id)
}

// Schedule returns one schedule.
func (c Calls) Schedule(ctx context.Context, id chat.ID, name string) (chat.Schedule, error) {
	return schedule.call(ctx, c, id, name)
}

// RemoveSchedule removes a schedule. Its current run continues.
func (c Calls) RemoveSchedule(ctx context.Context, id chat.ID, name string) error {
	return removeSchedule.order(ctx, c, id, name)
}

// Input types into a chat's terminal.
func (c Calls) Input(ctx context.Context, id chat.ID, in chat.Input) error {
	return input.order(ctx, c, id, in)
}

// Screen returns the screen of a chat's terminal.
func (c Calls) Screen(ctx context.Context, id chat.ID) (chat.Screen, error) {
	return c.ScreenWith(ctx, id, chat.ScreenSpec{})
}

// ScreenWith is Screen with the colours and the scrolled-off lines that spec asks for.
func (c Calls) ScreenWith(ctx context.Context, id chat.ID, spec chat.ScreenSpec) (chat.Screen, error) {
	if err := spec.Validate(); err != nil {
		return chat.Screen{}, err
	}
	return screen.call(ctx, c, id, spec)
}

// EgressLog returns what became of a chat's connections.
func (c Calls) EgressLog(ctx context.Context, id chat.ID) (chat.EgressLog, error) {
	return egressLog.call(ctx, c, id)
}

// Plan describes a chat's session.
func (c Calls) Plan(ctx context.Context, id chat.ID) (chat.Plan, error) { return plan.call(ctx, c, id) }

// Host describes the machine and its walls.
func (c Calls) Host(ctx context.Context) (chat.Host, error) { return host.call(ctx, c, "") }

// Status summarizes the daemon's state.
func (c Calls) Status(ctx context.Context) (chat.Status, error) { return status.call(ctx, c, "") }

// Backup writes the daemon's state into an archive.
func (c Calls) Backup(ctx context.Context) (chat.Backup, error) { return backup.call(ctx, c, "") }
