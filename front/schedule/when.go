package schedule

import (
	"fmt"
	"regexp"
	"strings"
	"time"
	_ "time/tzdata" // a bare host has no /usr/share/zoneinfo

	"github.com/robfig/cron/v3"

	"github.com/chatd/chatd/chat"
)

// When is when a schedule comes due, read from its spec.
type When struct {
	cron    *cron.SpecSchedule // in local time; nil for the others
	anyHour bool
	zone    *time.Location
	every   time.Duration
	anchor  time.Time // every counts from here
	at      time.Time
}

// descriptors are the names that cron expressions have, and what each is.
var descriptors = map[string]string{
	"@hourly": "0 * * * *", "@daily": "0 0 * * *", "@midnight": "0 0 * * *", "@weekly": "0 0 * * 0",
	"@monthly": "0 0 1 * *", "@yearly": "0 0 1 1 *", "@annually": "0 0 1 1 *",
}

const wantCron = "want five fields as in \"30 9 * * 1-5\" (minute hour day-of-month month day-of-week), or @hourly, @daily, @weekly, @monthly, @yearly"

// cronField has the characters of a field. The parser's extensions, such as a leading time zone,
// are separate fields here.
var cronField = regexp.MustCompile(`^[0-9A-Za-z*,/-]+$`)

// Parse reads the spec of a schedule that was made at made. An invalid spec is a [chat.ErrInvalid]
// that names the field and the expectation.
func Parse(s chat.ScheduleSpec, made time.Time) (When, error) {
	if err := s.Validate(); err != nil {
		return When{}, err
	}
	w := When{every: s.Every.D(), anchor: plain(made).Truncate(time.Second)}
	var err error
	if w.zone, err = zone(s.TimeZone); err != nil {
		return When{}, err
	}
	switch {
	case s.Cron != "":
		err = w.readCron(s.Cron)
	case s.At != "":
		w.at, err = readAt(s.At, w.zone)
	}
	if err != nil {
		return When{}, err
	}
	return w, nil
}

func (w *When) readCron(text string) error {
	expr := strings.TrimSpace(text)
	if strings.HasPrefix(expr, "@") {
		if expr = descriptors[strings.ToLower(expr)]; expr == "" {
			return cronError(text, "no such name")
		}
	}
	fields := strings.Fields(expr)
	if len(fields) != 5 {
		return cronError(text, fmt.Sprintf("%d fields", len(fields)))
	}
	for i, f := range fields {
		if !cronField.MatchString(f) {
			return cronError(text, fmt.Sprintf("field %d, %s", i+1, chat.Quote(f)))
		}
	}
	parsed, err := cron.NewParser(cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow).Parse(strings.Join(fields, " "))
	if err != nil {
		return cronError(text, strings.ReplaceAll(err.Error(), "\n", " "))
	}
	spec, ok := parsed.(*cron.SpecSchedule)
	if !ok {
		return cronError(text, "no times")
	}
	spec.Location = time.UTC
	w.cron, w.anyHour = spec, strings.HasPrefix(fields[1], "*")
	if w.Next(w.anchor).IsZero() {
		return cronError(text, "no such day within five years")
	}
	return nil
}

func cronError(text, why string) error {
	return chat.Invalid("cannot schedule: cron %s: %s: %s", chat.Quote(text), why, wantCron)
}

// zone is the time zone of that name. Local is refused: it is the daemon's, and changes
// with the host.
func zone(name string) (*time.Location, error) {
	if name == "" {
		return time.UTC, nil
	}
	z, err := time.LoadLocation(name)
	if err != nil || name == "Local" {
		return nil, chat.Invalid("cannot schedule: time_zone %s: want a name of the IANA data base as in Europe/Berlin, or UTC", chat.Quote(name))
	}
	return z, nil
}

// atForms are RFC 3339, and the same without an offset or seconds.
var atForms = []string{time.RFC3339, "2006-01-02T15:04:05", "2006-01-02T15:04"}

func readAt(text string, z *time.Location) (time.Time, error) {
	for _, form := range atForms {
		// The year in UTC: it is written down so, and JSON has none of five digits.
		if t, err := time.ParseInLocation(form, text, z); err == nil && t.UTC().Year() >= 1970 &&
			t.UTC().Year() < 10000 {
			return t.UTC(), nil
		}
	}
	return time.Time{}, chat.Invalid("cannot schedule: at %s: want RFC 3339 as in 2026-11-21T09:00:00Z, or 2026-11-21T09:00 in time_zone", chat.Quote(text))
}

// Next is the first time after the given one, zero if there is none. Of a single time it
// is that time, as long as it is not over.
func (w When) Next(after time.Time) time.Time {
	after = plain(after)
	switch {
	case w.cron != nil && w.anyHour:
		return w.nextPassing(after)
	case w.cron != nil:
		return w.nextOnce(after)
	case w.every > 0:
		// Sub stops at 292 years, so count in seconds.
		behind, every := after.Unix()-w.anchor.Unix(), int64(w.every/time.Second)
		n := behind / every
		if behind < 0 && behind%every != 0 {
			n--
		}
		return time.Unix(w.anchor.Unix()+(n+1)*every, 0).UTC()
	case w.at.After(after):
		return w.at
	}
	return time.Time{}
}

// maxMissed bounds how many times are counted.
const maxMissed = 1000

// Between is how many times lie after one time and not after the other, at most 1000.
func (w When) Between(after, until time.Time) (n uint64) {
	for t := w.Next(after); !t.IsZero() && !t.After(until) && n < maxMissed; t = w.Next(t) {
		n++
	}
	return n
}

// setBack is how far the clock may be set back before it is taken to have been wrong.
const setBack = 3 * time.Hour

// Resume is when a schedule comes due whose next time was next and whose last one was taken (zero
// if none was). A clock that was set back must neither repeat a time nor delay it by years.
func (w When) Resume(next, taken, now time.Time) time.Time {
	now = plain(now)
	if next.IsZero() || !next.After(now) || w.cron == nil && w.every == 0 {
		return plain(next)
	}
	after := now
	if w.cron != nil && taken.After(now) && taken.Sub(now) <= setBack {
		after = plain(taken)
	}
	if t := w.Next(after); t.Before(next) {
		return t
	}
	return plain(next)
}

// nextPassing is the next local time that fits, in the order in which times pass: each
// stretch between two changes of the clocks by itself.
func (w When) nextPassing(after time.Time) time.Time {
	for range 64 {
		local := after.In(w.zone)
		_, offset := local.Zone()
		n := w.cron.Next(naive(local))
		if n.IsZero() {
			return time.Time{}
		}
		t := n.Add(-time.Duration(offset) * time.Second)
		_, end := local.ZoneBounds()
		if end.IsZero() || t.Before(end) {
			return t.UTC()
		}
		// Begin again right before the first moment of the next stretch, in its own time.
		_, offset = end.Zone()
		if n = w.cron.Next(naive(end).Add(-time.Second)); n.IsZero() {
			return time.Time{}
		}
		t = n.Add(-time.Duration(offset) * time.Second)
		if _, next := end.ZoneBounds(); next.IsZero() || t.Before(next) {
			return t.UTC()
		}
		after = end.Add(time.Second)
	}
	return time.Time{}
}

// nextOnce is the next local time that fits, each of them once. Only where clocks have just changed
// may a time that they showed before be still to come.
func (w When) nextOnce(after time.Time) time.Time {
	local := after.In(w.zone)
	from := naive(local)
	if begun, _ := local.ZoneBounds(); after.Sub(begun) <= setBack {
		from = from.Add(-setBack)
	}
	for n := w.cron.Next(from); !n.IsZero(); n = w.cron.Next(n) {
		if t := firstOf(n, w.zone); t.After(after) {
			return t
		}
	}
	return time.Time{}
}

// firstOf is the moment at which clocks of the zone show n: the first one, if there are
// two. If there is none, it is as much later as the clocks went forward.
func firstOf(n time.Time, z *time.Location) time.Time {
	const far = 26 * time.Hour // further than any zone is from UTC
	shows := func(near time.Duration) (time.Time, bool) {
		_, offset := n.Add(near).In(z).Zone()
		t := n.Add(-time.Duration(offset) * time.Second)
		return t, naive(t.In(z)).Equal(n)
	}
	before, ok := shows(-far)
	if later, shown := shows(far); !ok && shown {
		return later
	}
	return before
}

// naive is what clocks show, as if they were in UTC.
func naive(t time.Time) time.Time {
	return time.Date(t.Year(), t.Month(), t.Day(), t.Hour(), t.Minute(), t.Second(), t.Nanosecond(), time.UTC)
}

// plain is a time of the wall clock alone: without the monotonic one, which stands still
// while a host sleeps.
func plain(t time.Time) time.Time {
	if t.IsZero() {
		return t
	}
	return t.Round(0).UTC()
}
