package chat

import "time"

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
