package chat

import "time"

// NewSchedule is a schedule that is to be kept.
type NewSchedule struct {
	Spec ScheduleSpec `json:"spec"`
	// Made is when, and Next when it comes due first.
	Made time.Time `json:"made"`
	Next time.Time `json:"next"`
	// Named are the paths that its command names.
	Named []NamedPath `json:"named,omitempty"`
}

// KeptSchedule is a schedule as it is kept, for the clock that it goes by.
type KeptSchedule struct {
	Schedule
	Chat  ID     `json:"chat"`
	Owner string `json:"owner"`
	// By is the caller who made it, and as whom it runs.
	By Caller `json:"by"`
	// Taken is when the last of its times was taken, and Due the time that this was for.
	Taken time.Time `json:"taken,omitzero"`
	Due   time.Time `json:"due,omitzero"`
	// GoesOn: a run of it is in progress that an earlier process began.
	GoesOn bool `json:"goes_on,omitempty"`
}

// DueSchedule is a time of a schedule that has come.
type DueSchedule struct {
	Chat ID     `json:"chat"`
	ID   string `json:"id"`
	// At is the time, Now when it is taken.
	At  time.Time `json:"at"`
	Now time.Time `json:"now"`
	// Next is when it comes due again; zero is never.
	Next time.Time `json:"next,omitzero"`
	// Missed and Skipped are how many times more have passed, and came due while it was busy.
	Missed  uint64 `json:"missed,omitempty"`
	Skipped uint64 `json:"skipped,omitempty"`
	// GoesOn: its run is in progress, and was begun by an earlier process.
	GoesOn bool `json:"goes_on,omitempty"`
	// Named are the paths that its command names; Refused says why the command does not run.
	Named   []NamedPath `json:"named,omitempty"`
	Refused *RefusedDue `json:"refused,omitempty"`
}

// RefusedDue is why the command of a schedule does not run this time.
type RefusedDue struct {
	// Said is the reason, for the schedule's result.
	Said string `json:"said"`
	// Denial is that of a guard; nil for a command that cannot be judged.
	Denial *RunDenial `json:"denial,omitempty"`
}
