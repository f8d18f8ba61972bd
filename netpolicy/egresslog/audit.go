package egresslog

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/chatd/chatd/chat"
)

const (
	// maxLines is how many lines of the audit log a chat may have immediately. It gets one more
	// each time that lineEvery has passed, so that what a chat tries that has used up its lines is
	// seen soon. Lines about what is known leave some for what is new.
	maxLines   = 20
	maxOfKnown = maxLines / 2
	lineEvery  = 5 * time.Minute
	// windowLength is how long alike refusals are counted before a line tells how many there were.
	windowLength = time.Hour
	// maxPlaces is how many destinations are known, of 600 bytes each at most.
	maxPlaces = 32
)

// place is where refused connections, datagrams or questions were to. Alike refusals have it in
// common; their reasons may have texts of the chat.
type place struct {
	host, address string
	port          uint16
	udp           bool
}

func placeOf(e chat.EgressEvent) place { return place{e.Host, e.Address, e.Port, e.UDP} }

// known is a place that had a line, and what came after it in this window.
type known struct {
	place  place
	why    string
	count  int64
	lately bool // it was refused in this window
}

// window is an hour of a chat's refusals. It begins with one. A place that was not refused in this
// window or the one before has a line immediately; one that is known, at the window's end. At that
// end one more line has the number of refusals that no other line tells of.
type window struct {
	began, ended time.Time
	known        []*known
	more         int64

	spent  int       // lines beyond those that time has brought
	earned time.Time // when the last one came
}

// take reports whether the chat may have a line now, of which there are this many immediately.
func (w *window) take(now time.Time, most int) bool {
	n := min(int64(w.spent), int64(max(0, now.Sub(w.earned))/lineEvery))
	w.spent -= int(n)
	w.earned = w.earned.Add(time.Duration(n) * lineEvery)
	if w.spent == 0 || now.Before(w.earned) { // no time is saved up, and a clock may be set back
		w.earned = now
	}
	if w.spent >= most {
		return false
	}
	w.spent++
	return true
}

// turn ends a window that is over.
func (w *window) turn(now time.Time) []map[string]string {
	if over := now.Sub(w.began); w.began.IsZero() || 0 <= over && over < windowLength {
		return nil
	}
	return w.end(now)
}

// end ends a window, and returns its last lines.
func (w *window) end(now time.Time) (lines []map[string]string) {
	for _, k := range w.known {
		switch {
		case k.count == 0:
		case w.take(now, maxOfKnown):
			lines = append(lines, k.line(w.began))
		default:
			w.more = sum(w.more, k.count)
		}
	}
	if w.more > 0 {
		lines = append(lines, map[string]string{"count": fmt.Sprint(w.more),
			"since": w.began.UTC().Format(time.RFC3339),
			"why": fmt.Sprintf("beyond the chat's lines: %d, then one each %d minutes", maxLines,
				lineEvery/time.Minute)})
	}
	w.known = slices.DeleteFunc(w.known, func(k *known) bool { return !k.lately })
	for _, k := range w.known {
		k.count, k.lately = 0, false
	}
	w.began, w.ended, w.more = time.Time{}, now, 0
	return lines
}

// begin begins a window, if there is none. What is known from long ago is new again.
func (w *window) begin(now time.Time) {
	if !w.began.IsZero() {
		return
	}
	w.began = now
	if now.Sub(w.ended) >= windowLength {
		w.known = nil
	}
}

// line is the line about a refusal; none if it has to wait for the window's end.
func (w *window) line(now time.Time, e chat.EgressEvent) []map[string]string {
	w.begin(now)
	p := placeOf(e)
	i := slices.IndexFunc(w.known, func(k *known) bool { return k.place == p })
	if i >= 0 {
		k := w.known[i]
		k.count, k.why, k.lately = sum(k.count, e.Count), e.Why, true
		return nil
	}
	if !w.take(now, maxLines) {
		w.more = sum(w.more, e.Count)
		return nil
	}
	if len(w.known) >= maxPlaces {
		w.more = sum(w.more, w.known[0].count)
		w.known = slices.Delete(w.known, 0, 1)
	}
	w.known = append(w.known, &known{place: p, lately: true})
	return []map[string]string{p.line(e.Count, e.Why)}
}

// line is about what came after the first line of a place.
func (k *known) line(since time.Time) map[string]string {
	l := k.place.line(k.count, k.why)
	maps.Copy(l, map[string]string{"again": "true", "since": since.UTC().Format(time.RFC3339)})
	return l
}

func (p place) line(count int64, why string) map[string]string {
	detail := map[string]string{"count": fmt.Sprint(count), "why": why}
	for key, value := range map[string]string{"host": p.host, "address": p.address} {
		if value != "" {
			detail[key] = value
		}
	}
	if p.port != 0 {
		detail["port"] = fmt.Sprint(p.port)
	}
	if p.udp {
		detail["udp"] = "true"
	}
	return detail
}

// sum keeps a count within what is reported of one.
func sum(a, b int64) int64 { return min(a+b, 1<<53) }
