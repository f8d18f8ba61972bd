package schedule

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

func at(t testing.TB, text string) time.Time {
	t.Helper()
	v := must.Get(time.Parse(time.RFC3339, text))(t)
	return v
}

func parsed(t testing.TB, s chat.ScheduleSpec, made string) When {
	t.Helper()
	s.Command = "true"
	w := must.Get(Parse(s, at(t, made)))(t)
	return w
}

// The times that follow one another, with daylight saving, leap days and ends of months.
func TestNext(t *testing.T) {
	for _, c := range []struct {
		spec  chat.ScheduleSpec
		after string
		want  string
	}{
		{chat.ScheduleSpec{Cron: "30 9 * * 1-5"}, "2026-11-20T09:30:00Z", "2026-11-23T09:30:00Z 2026-11-24T09:30:00Z"},
		{chat.ScheduleSpec{Cron: " */20  * * * * "}, "2026-11-20T09:30:00.5Z", "2026-11-20T09:40:00Z 2026-11-20T10:00:00Z"},
		{chat.ScheduleSpec{Cron: "@Daily"}, "2026-11-20T00:00:00Z", "2026-11-21T00:00:00Z"},
		{chat.ScheduleSpec{Cron: "0 0 31 * *"}, "2026-11-20T00:00:00Z", "2026-12-31T00:00:00Z 2027-01-31T00:00:00Z 2027-03-31T00:00:00Z"},
		{chat.ScheduleSpec{Cron: "0 0 29 feb *"}, "2026-11-20T00:00:00Z", "2028-02-29T00:00:00Z 2032-02-29T00:00:00Z"},
		{chat.ScheduleSpec{Cron: "0 12 * * *", TimeZone: "Asia/Kolkata"}, "2026-11-20T00:00:00Z", "2026-11-20T06:30:00Z"},
		// The clocks go forward at 2:00 on 2026-03-29 in Berlin, and back at 3:00 on 2026-10-25.
		{chat.ScheduleSpec{Cron: "30 2 * * *", TimeZone: "Europe/Berlin"}, "2026-03-28T00:00:00Z", "2026-03-28T01:30:00Z 2026-03-29T01:30:00Z 2026-03-30T00:30:00Z"},
		{chat.ScheduleSpec{Cron: "30 2 * * *", TimeZone: "Europe/Berlin"}, "2026-10-24T12:00:00Z", "2026-10-25T00:30:00Z 2026-10-26T01:30:00Z"},
		{chat.ScheduleSpec{Cron: "30 2 * * *", TimeZone: "Europe/Berlin"}, "2026-10-25T01:10:00Z", "2026-10-26T01:30:00Z"},
		{chat.ScheduleSpec{Cron: "0 * * * *", TimeZone: "Europe/Berlin"}, "2026-03-29T00:00:00Z", "2026-03-29T01:00:00Z 2026-03-29T02:00:00Z"},
		{chat.ScheduleSpec{Cron: "0 * * * *", TimeZone: "Europe/Berlin"}, "2026-10-24T23:30:00Z", "2026-10-25T00:00:00Z 2026-10-25T01:00:00Z 2026-10-25T02:00:00Z"},
		// Lord Howe's clocks move by half an hour: back at 2:00 on 2026-04-05.
		{chat.ScheduleSpec{Cron: "45 1 * * *", TimeZone: "Australia/Lord_Howe"}, "2026-04-04T00:00:00Z", "2026-04-04T14:45:00Z 2026-04-05T15:15:00Z"},
		{chat.ScheduleSpec{Cron: "15,45 * * * *", TimeZone: "Australia/Lord_Howe"}, "2026-04-04T14:20:00Z", "2026-04-04T14:45:00Z 2026-04-04T15:15:00Z 2026-04-04T15:45:00Z"},
		{chat.ScheduleSpec{Every: chat.Duration(90 * time.Minute)}, "2026-11-20T09:00:00Z", "2026-11-20T10:30:00Z 2026-11-20T12:00:00Z"},
		{chat.ScheduleSpec{Every: chat.Duration(90 * time.Minute)}, "2026-11-20T05:00:00Z", "2026-11-20T06:00:00Z 2026-11-20T07:30:00Z"},
		{chat.ScheduleSpec{Every: chat.Duration(time.Minute)}, "1971-01-01T00:00:01Z", "1971-01-01T00:01:00Z"},
		{chat.ScheduleSpec{At: "2026-11-21T09:00:00+01:00"}, "2026-11-21T07:59:59Z", "2026-11-21T08:00:00Z 0001-01-01T00:00:00Z"},
		{chat.ScheduleSpec{At: "2026-11-21T09:00", TimeZone: "America/New_York"}, "2026-11-21T07:59:59Z", "2026-11-21T14:00:00Z"},
	} {
		w := parsed(t, c.spec, "2026-11-20T09:00:00Z")
		now := at(t, c.after)
		for _, want := range strings.Fields(c.want) {
			now = w.Next(now)
			got := now.Format(time.RFC3339Nano)
			expect.True(t, got == want, "%+v after %s: got %s, want %s", c.spec, c.after, got, want)
		}
	}
}

// The error of an invalid spec names the field and the expectation.
func TestParseRefuses(t *testing.T) {
	for _, c := range []struct {
		spec chat.ScheduleSpec
		want string
	}{
		{chat.ScheduleSpec{}, "exactly one of cron, every and at"},
		{chat.ScheduleSpec{Cron: "@daily", Every: chat.MinEvery}, "exactly one of cron, every and at"},
		{chat.ScheduleSpec{Cron: "every day at nine"}, "cron \"every day at nine\": 4 fields: want five fields"},
		{chat.ScheduleSpec{Cron: "0 9 * * * *"}, "6 fields: want five"},
		{chat.ScheduleSpec{Cron: "TZ=Europe/Berlin"}, "1 fields: want five"},
		{chat.ScheduleSpec{Cron: "TZ=UTC * * * *"}, "field 1, \"TZ=UTC\": want five"},
		{chat.ScheduleSpec{Cron: "0 9 * * \x1b[2J"}, `field 5, "\x1b[2J": want`},
		{chat.ScheduleSpec{Cron: "61 * * * *"}, "cron \"61 * * * *\""},
		{chat.ScheduleSpec{Cron: "*/0 * * * *"}, "cron \"*/0 * * * *\""},
		{chat.ScheduleSpec{Cron: "@every 1s"}, "no such name: want five fields"},
		{chat.ScheduleSpec{Cron: "@reboot"}, "no such name"},
		{chat.ScheduleSpec{Cron: "0 0 30 2 *"}, "no such day"},
		{chat.ScheduleSpec{Cron: strings.Repeat("1,", 100) + " * * * *"}, "cron has 208 bytes, want at most 128"},
		{chat.ScheduleSpec{Every: chat.Duration(30 * time.Second)}, "every 30s: want 1m0s to"},
		{chat.ScheduleSpec{Every: chat.Duration(-time.Hour)}, "every -1h0m0s: want 1m0s to"},
		{chat.ScheduleSpec{Every: chat.Duration(90*time.Second + 1)}, "in whole seconds"},
		{chat.ScheduleSpec{Every: chat.MinEvery, TimeZone: "UTC"}, "time_zone \"UTC\": every has none"},
		{chat.ScheduleSpec{At: "tomorrow"}, "at \"tomorrow\": want RFC 3339 as in"},
		{chat.ScheduleSpec{At: "9999-12-31T23:59:59-23:59"}, "want RFC 3339 as in"}, // in UTC a year of five digits, which JSON has not
		{chat.ScheduleSpec{Cron: "@daily", TimeZone: "Local"}, "time_zone \"Local\": want a name of the IANA data base"},
		{chat.ScheduleSpec{Cron: "@daily", TimeZone: "../../etc/passwd"}, "time_zone \"../../etc/passwd\": want"},
		{chat.ScheduleSpec{Cron: "@daily", TimeZone: "/etc/localtime"}, "time_zone \"/etc/localtime\": want"},
	} {
		c.spec.Command = "true"
		_, err := Parse(c.spec, at(t, "2026-11-20T09:00:00Z"))
		if !errors.Is(err, chat.ErrInvalid) || !strings.Contains(err.Error(), c.want) || !strings.HasPrefix(err.Error(), "cannot schedule: ") {
			t.Errorf("%+v: %v, want %q", c.spec, err, c.want)
		}
	}
	for _, s := range []chat.ScheduleSpec{{Cron: "@daily"}, {Cron: "@daily", Command: "a", Argv: []string{"b"}}, {Cron: "@daily", Command: strings.Repeat("x", chat.MaxScheduleArgs+1)}, {Cron: "@daily", Command: "a", Timeout: -1}} {
		_, err := Parse(s, time.Time{})
		expect.True(t, errors.Is(err, chat.ErrInvalid), "%+v: %v", s, err)
	}
}

// A clock that was set back repeats no time of a cron expression, unless it was wrong
// before; an interval goes on; a single time stays.
func TestResume(t *testing.T) {
	hourly := chat.ScheduleSpec{Cron: "5 * * * *"}
	for _, c := range []struct {
		spec                   chat.ScheduleSpec
		next, taken, now, want string
	}{
		{hourly, "2026-11-21T11:05:00Z", "2026-11-21T10:05:00Z", "2026-11-21T09:01:00Z", "2026-11-21T11:05:00Z"},
		{hourly, "2031-11-21T11:05:00Z", "2031-11-21T10:05:00Z", "2026-11-21T09:01:00Z", "2026-11-21T09:05:00Z"},
		{hourly, "2026-11-21T10:05:00Z", "2026-11-21T09:05:00Z", "2026-11-21T10:04:00Z", "2026-11-21T10:05:00Z"},
		{hourly, "2026-11-21T10:05:00Z", "2026-11-21T09:05:00Z", "2026-11-21T15:04:00Z", "2026-11-21T10:05:00Z"}, // missed, and caught up
		{chat.ScheduleSpec{Every: chat.Duration(time.Hour)}, "2031-11-21T11:00:00Z", "2031-11-21T10:00:00Z", "2026-11-21T09:01:00Z", "2026-11-21T10:00:00Z"},
		{chat.ScheduleSpec{At: "2026-11-30T00:00:00Z"}, "2026-11-30T00:00:00Z", "0001-01-01T00:00:00Z", "2020-01-01T00:00:00Z", "2026-11-30T00:00:00Z"},
	} {
		w := parsed(t, c.spec, "2026-11-20T09:00:00Z")
		got := w.Resume(at(t, c.next), at(t, c.taken), at(t, c.now)).Format(time.RFC3339)
		expect.True(t, got == c.want, "%+v: got %s, want %s", c, got, c.want)
	}
	if w := parsed(t, hourly, "2026-11-20T09:00:00Z"); w.Between(at(t, "2026-11-20T09:05:00Z"), at(t, "2026-11-20T12:04:00Z")) != 2 ||
		w.Between(at(t, "1990-01-01T00:00:00Z"), at(t, "2026-11-20T12:04:00Z")) != maxMissed {
		t.Error("between")
	}
}

// Whatever the text, it is an error of the form that the house has or a schedule whose
// times go on.
func FuzzParse(f *testing.F) {
	for _, s := range []string{"* * * * *", "TZ=0", "CRON_TZ=", "0 0 30 2 *", "1-59/7 */2 1,15 jan-mar mon", "@daily", "? ? ? ? ?", "0 9 * * 1#2", "99999999999999999999 * * * *", "*/0 * * * *", "5-1 * * * *", "- * * * *", "/ , - * *"} {
		f.Add(s, "Europe/Berlin", "2026-11-21T09:00:00Z", int64(time.Hour), int64(1e9))
	}
	f.Add("", "Local", "", int64(-1), int64(0))
	f.Add("0 2 * * *", "Africa/Casablanca", "", int64(0), int64(1<<40))
	f.Fuzz(func(t *testing.T, text, zone, single string, every, now int64) {
		after := time.Unix(now%(1<<33), 0)
		for _, s := range []chat.ScheduleSpec{{Cron: text, TimeZone: zone}, {At: single, TimeZone: zone}, {Every: chat.Duration(every)}} {
			s.Command = "true"
			w, err := Parse(s, after)
			if err != nil {
				if !errors.Is(err, chat.ErrInvalid) || !strings.HasPrefix(err.Error(), "cannot ") || strings.ContainsAny(err.Error(), "\n\x1b\x00") {
					t.Fatalf("%+v: %q", s, err)
				}
				continue
			}
			last := after
			for range 5 {
				next := w.Next(last)
				if next.IsZero() {
					break
				}
				must.True(t, next.After(last), "%+v after %s: %s", s, last, next)
				got := w.Resume(next, last, last.Add(-time.Hour))
				must.True(t, !got.After(next), "%+v: resumed at %s, later than %s", s, got, next)
				last = next
			}
		}
	})
}
