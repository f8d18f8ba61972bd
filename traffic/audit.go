package traffic

import (
	"fmt"
	"time"

	"github.com/chatd/chatd/chat"
)

// maxLines is how many refusals of a chat are lines of the audit log in a minute.
const maxLines = 20

// window is the minute for which lines of a chat are counted. It begins with a refusal.
type window struct {
	began time.Time
	lines int
	more  int64 // refusals beyond the lines
}

// turn ends a minute that is over, and returns the line about what was beyond, if something was.
func (w *window) turn(now time.Time) []map[string]string {
	if over := now.Sub(w.began); 0 <= over && over < time.Minute {
		return nil
	}
	return w.end()
}

// end ends a minute.
func (w *window) end() []map[string]string {
	more := w.more
	*w = window{}
	if more == 0 {
		return nil
	}
	return []map[string]string{{"count": fmt.Sprint(more),
		"why": fmt.Sprintf("over %d lines in a minute", maxLines)}}
}

// line is the line about a refusal; none if the minute has its lines.
func (w *window) line(now time.Time, e chat.EgressEvent) []map[string]string {
	if w.lines == 0 {
		w.began = now
	}
	if w.lines >= maxLines {
		w.more = min(w.more+e.Count, 1<<53) // whatever is reported
		return nil
	}
	w.lines++
	detail := map[string]string{"count": fmt.Sprint(e.Count), "why": e.Why}
	for key, value := range map[string]string{"host": e.Host, "address": e.Address} {
		if value != "" {
			detail[key] = value
		}
	}
	if e.Port != 0 {
		detail["port"] = fmt.Sprint(e.Port)
	}
	if e.UDP {
		detail["udp"] = "true"
	}
	return []map[string]string{detail}
}
