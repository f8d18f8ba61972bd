package chat

import (
	"strings"
	"time"
)

// Bounds of schedules.
const (
	// MaxSchedules is how many a chat may have.
	MaxSchedules = 32
	// DefaultScheduleTimeout is the timeout of a [ScheduleSpec] without one.
	DefaultScheduleTimeout = Duration(5 * time.Minute)
	// MinEvery and MaxEvery bound [ScheduleSpec].Every.
	MinEvery = Duration(time.Minute)
	MaxEvery = Duration(366 * 24 * time.Hour)
	// MaxScheduleArgs bounds command, argv, cwd and env together, in bytes, because they are
	// stored.
	MaxScheduleArgs = 16 << 10
	// MaxTail is how much of the last run's output is kept, in bytes.
	MaxTail = 4 << 10
	// maxWhen bounds cron, at and time_zone, in bytes.
	maxWhen = 128
)

// ScheduleSpec is a command and the times at which a chat runs it. Exactly one of Cron, Every and
// At is set.
type ScheduleSpec struct {
	// Cron are five fields of crontab(5), or @hourly, @daily, @weekly, @monthly, @yearly.
	Cron string `json:"cron,omitempty" maxLength:"128" doc:"Five fields of crontab(5): minute hour day-of-month month day-of-week; or @hourly, @daily, @weekly, @monthly, @yearly. Exactly one of cron, every and at."`
	// Every counts from when the schedule was made.
	Every Duration `json:"every,omitempty" doc:"The time between two runs, at least 1m, as in 30m."`
	// At is RFC 3339; without an offset it is a time in TimeZone.
	At string `json:"at,omitempty" maxLength:"128" doc:"Once, at this time: RFC 3339, as in 2026-11-21T09:00:00Z; without an offset a time in time_zone."`
	// TimeZone is a name of the IANA data base; empty means UTC.
	TimeZone string `json:"time_zone,omitempty" maxLength:"128" doc:"What cron and at mean, as in Europe/Berlin; UTC if empty."`
	// Command goes to sh -c; exactly one of Command and Argv is set.
	Command string            `json:"command,omitempty" doc:"A shell command, run by sh -c. Exactly one of command and argv."`
	Argv    []string          `json:"argv,omitempty" doc:"A program and its arguments, run as they are."`
	Cwd     string            `json:"cwd,omitempty" maxLength:"4096" doc:"Working directory in the chat's view; the home if empty."`
	Env     map[string]string `json:"env,omitempty" doc:"Variables added to the clean environment."`
	// Timeout ends the whole run; zero means [DefaultScheduleTimeout].
	Timeout Duration `json:"timeout,omitempty" doc:"After which the whole run is ended; 5m if it is left out."`
	// Grace is that of a [RunSpec].
	Grace Duration `json:"grace,omitempty" doc:"Between SIGTERM and SIGKILL when the run is ended; 2s if it is left out."`
}

// Run is the run of a due schedule. A spec without a timeout gives a run without one, which the
// profile's maximum may shorten.
func (s ScheduleSpec) Run() RunSpec {
	return RunSpec{Command: s.Command, Argv: s.Argv, Cwd: s.Cwd, Env: s.Env, Timeout: s.Timeout,
		Grace: s.Grace}
}

// Validate reports the first invalid field, as [ErrInvalid]. Package schedule parses
// cron, at and time_zone.
func (s ScheduleSpec) Validate() error {
	if countTrue(s.Cron != "", s.Every != 0, s.At != "") != 1 {
		return Invalid("cannot schedule: want exactly one of cron, every and at")
	}
	for _, f := range []struct{ field, text string }{{"cron", s.Cron}, {"at", s.At},
		{"time_zone", s.TimeZone}} {
		if len(f.text) > maxWhen {
			return Invalid("cannot schedule: %s has %d bytes, want at most %d", f.field, len(f.text), maxWhen)
		}
	}
	if s.Every != 0 && (s.Every < MinEvery || s.Every > MaxEvery || s.Every.D()%time.Second != 0) {
		return Invalid("cannot schedule: every %s: want %s to %s, in whole seconds", s.Every, MinEvery,
			MaxEvery)
	}
	if s.Every != 0 && s.TimeZone != "" {
		return Invalid("cannot schedule: time_zone %s: every has none, only cron and at", Quote(s.TimeZone))
	}
	if err := s.Run().Validate(); err != nil {
		return err
	}
	size := len(s.Command) + len(s.Cwd) + len(strings.Join(s.Argv, " "))
	for k, v := range s.Env {
		size += len(k) + len(v)
	}
	if size > MaxScheduleArgs {
		return Invalid("cannot schedule: command, argv, cwd and env take %d bytes, want at most %d", size,
			MaxScheduleArgs)
	}
	return nil
}

func countTrue(all ...bool) (n int) {
	for _, one := range all {
		if one {
			n++
		}
	}
	return n
}

// Schedule is one command that a chat runs at given times, or once.
type Schedule struct {
	// ID is unique within the chat.
	ID string `json:"id"`
	// Spec is the caller's request.
	Spec      ScheduleSpec `json:"spec"`
	CreatedAt time.Time    `json:"created_at"`
	// CreatedBy is the caller that created it; its runs are audited under this name.
	CreatedBy string `json:"created_by"`
	// Next is when it is due next; nil means never.
	Next *time.Time `json:"next,omitempty"`
	// RunningSince is when the current run began; nil if there is none.
	RunningSince *time.Time `json:"running_since,omitempty"`
	// Runs counts the runs that began, Skipped the due times at which the previous run was still
	// running or waiting, and Missed those that passed while chatd was down, the host slept or the
	// clock was set forward, except the one that is caught up.
	Runs    uint64 `json:"runs"`
	Skipped uint64 `json:"skipped"`
	Missed  uint64 `json:"missed"`
	// Last is how the last run ended; nil before the first.
	Last *ScheduleResult `json:"last,omitempty"`
}

// ScheduleResult is how a scheduled run ended, or why there was none.
type ScheduleResult struct {
	// DueAt is its due time, StartedAt when it began, which includes waking the chat.
	DueAt     time.Time `json:"due_at"`
	StartedAt time.Time `json:"started_at"`
	WallMS    int64     `json:"wall_ms"`
	// Exit is the exit code; -1 when a signal ended the command or it did not run.
	Exit      int    `json:"exit"`
	Signal    string `json:"signal,omitempty"`
	TimedOut  bool   `json:"timed_out"`
	OOMKilled bool   `json:"oom_killed"`
	// EndedBy is the cause that ended the run before its command exited; empty if none did.
	EndedBy EndedBy `json:"ended_by,omitempty" enum:"memory,timeout,request,sleep,reap,session,stop"`
	// Run is the id of the run, which is kept as background runs are; empty if there was none.
	Run string `json:"run,omitempty"`
	// Output is the tail of both streams, at most [MaxTail] bytes from a chat: escape it before
	// printing it on a terminal.
	Output string `json:"output"`
	// OutputBytes is the size of its whole output.
	OutputBytes int64 `json:"output_bytes"`
	// Error says why there was no run; empty if there was one.
	Error string `json:"error,omitempty"`
	// DeniedBy is the rule that denied it.
	DeniedBy string `json:"denied_by,omitempty"`
}

// Schedules is a list of them, in the order in which they were made.
type Schedules struct {
	Schedules []Schedule `json:"schedules"`
}

// NewSchedule is a schedule to be stored.
type NewSchedule struct {
	Spec ScheduleSpec `json:"spec"`
	// Made is the time of its creation, and Next the first time that it is due.
	Made time.Time `json:"made"`
	Next time.Time `json:"next"`
	// Named are the paths that its command names.
	Named []NamedPath `json:"named,omitempty"`
}

// StoredSchedule is a schedule as its record has it, for the front's clock.
type StoredSchedule struct {
	Schedule
	Chat  ID     `json:"chat"`
	Owner string `json:"owner"`
	// By is the caller who created it; its runs act for this caller.
	By Caller `json:"by"`
	// Taken is when chatd last handled a due time of it, and Due is that due time.
	Taken time.Time `json:"taken,omitzero"`
	Due   time.Time `json:"due,omitzero"`
	// StillRunning means that a run which an earlier front started is still in progress.
	StillRunning bool `json:"goes_on,omitempty"`
}

// DueSchedule is a schedule that has come due.
type DueSchedule struct {
	Chat ID     `json:"chat"`
	ID   string `json:"id"`
	// At is the due time, and Now the time at which chatd handles it.
	At  time.Time `json:"at"`
	Now time.Time `json:"now"`
	// Next is when it is due again; zero means never.
	Next time.Time `json:"next,omitzero"`
	// Missed counts further due times that have passed, and Skipped those during a run of it.
	Missed  uint64 `json:"missed,omitempty"`
	Skipped uint64 `json:"skipped,omitempty"`
	// GoesOn means that a run which an earlier front started is still in progress.
	GoesOn bool `json:"goes_on,omitempty"`
	// Named are the paths that its command names. Refused is set if the command must not run.
	Named   []NamedPath `json:"named,omitempty"`
	Refused *RefusedDue `json:"refused,omitempty"`
}

// RefusedDue is why a scheduled command does not run this time.
type RefusedDue struct {
	// Reason goes into the schedule's result.
	Reason string `json:"said"`
	// Denial is the guard's; nil if the guard could not check the command.
	Denial *RunDenial `json:"denial,omitempty"`
}

// Error is r.Reason.
func (r *RefusedDue) Error() string { return r.Reason }
