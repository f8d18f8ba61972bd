package printer

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/chatd/chatd/chat"
)

// NewSchedule is the id of a schedule, and when it comes due.
func NewSchedule(s chat.Schedule) string {
	return lines(fmt.Sprintf("%s  next %s", s.ID, nextWord(s)))
}

// Schedules is a line for each schedule.
func Schedules(all []chat.Schedule) string {
	head := []string{"SCHEDULE", "WHEN", "NEXT", "RUNS", "SKIPPED", "MISSED", "LAST", "COMMAND"}
	return list(head, all, func(s chat.Schedule) []string {
		return []string{s.ID, whenWords(s.Spec), nextWord(s), fmt.Sprint(s.Runs), fmt.Sprint(s.Skipped),
			fmt.Sprint(s.Missed), lastWord(s), cut(commandWords(s.Spec), commandWidth)}
	})
}

// commandWidth is how much of a command a table shows.
const commandWidth = 41

// Schedule is everything about one schedule, and the end of what its last run printed.
func Schedule(w io.Writer, s chat.Schedule) error {
	all := []string{
		"schedule  " + s.ID, "when      " + whenWords(s.Spec), "command   " + commandWords(s.Spec),
		"next      " + nextWord(s),
		fmt.Sprintf("runs      %d, skipped %d, missed %d", s.Runs, s.Skipped, s.Missed),
		fmt.Sprintf("made      %s by %s", stamp(s.CreatedAt), s.CreatedBy),
		"last      " + lastWord(s),
	}
	if s.Last == nil {
		return Write(w, lines(all...))
	}
	began, due := stamp(s.Last.StartedAt), stamp(s.Last.DueAt)
	all = append(all, fmt.Sprintf("began     %s for %s", began, due))
	if s.Last.Run != "" {
		all = append(all, "run       "+s.Last.Run)
	}
	if s.Last.Error != "" {
		all = append(all, "error     "+s.Last.Error)
	}
	if s.Last.Output != "" {
		all = append(all, fmt.Sprintf("output    %d bytes, the end of them:", s.Last.OutputBytes))
	}
	if err := Write(w, lines(all...)); err != nil {
		return err
	}
	return ChatText(w, s.Last.Output)
}

func whenWords(s chat.ScheduleSpec) string {
	zone := ""
	if s.TimeZone != "" {
		zone = " " + s.TimeZone
	}
	switch {
	case s.Cron != "":
		return "cron " + s.Cron + zone
	case s.Every != 0:
		return "every " + s.Every.String()
	}
	return "at " + s.At + zone
}

func commandWords(s chat.ScheduleSpec) string {
	if s.Command != "" {
		return "-c " + s.Command
	}
	return strings.Join(s.Argv, " ")
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

func nextWord(s chat.Schedule) string {
	if s.Next == nil {
		return "never"
	}
	return stamp(*s.Next)
}

// lastWord is how the last run ended, in a few words.
func lastWord(s chat.Schedule) string {
	l := s.Last
	switch {
	case s.RunningSince != nil:
		return "runs since " + stamp(*s.RunningSince)
	case l == nil:
		return "-"
	case l.DeniedBy != "":
		return "denied by " + l.DeniedBy
	case l.Error != "":
		return "did not run"
	}
	how := fmt.Sprintf("exit %d", l.Exit)
	switch {
	case l.TimedOut:
		how = "timed out"
	case l.EndedBy != "":
		how = endedWord(l.EndedBy)
	case l.Signal != "":
		how = l.Signal
	}
	return fmt.Sprintf("%s after %s", how, time.Duration(l.WallMS)*time.Millisecond)
}
