package printer

import (
	"fmt"
	"strings"
	"time"

	"github.com/chatd/chatd/chat"
)

// EgressLog is a line for each entry of a chat's log of egress, and for what is open.
func EgressLog(l chat.EgressLog) string {
	rows := [][]string{{"TIME", "VERDICT", "TO", "COUNT", "SENT", "RECEIVED", "WHY"}}
	for _, e := range l.Entries {
		rows = append(rows, egressRow(e))
	}
	for _, c := range l.Open.Connections {
		rows = append(rows, openRow(c))
	}
	if more := l.Open.Count - len(l.Open.Connections); more > 0 {
		rows = append(rows, []string{"-", openWord, "others", fmt.Sprint(more), "-", "-", "-"})
	}
	if l.Open.Unknown != "" {
		rows = append(rows, []string{"-", openWord, "-", "-", "-", "-", l.Open.Unknown})
	}
	return table(rows)
}

// openWord stands in the place of a verdict for what is carried now.
const openWord = "open"

// EgressLine is the line of one entry, without a head.
func EgressLine(e chat.EgressEvent) string { return egressLine(egressRow(e)) }

// EgressOpenLine is the line of a connection that is open, without a head.
func EgressOpenLine(c chat.EgressConnection) string { return egressLine(openRow(c)) }

func egressLine(row []string) string {
	row[2] = Cell(row[2]) // its width is that of what is shown
	return lines(fmt.Sprintf("%s  %-7s  %-40s  %5s  %9s  %9s  %s",
		row[0], row[1], row[2], row[3], row[4], row[5], row[6]))
}

func openRow(c chat.EgressConnection) []string {
	return []string{
		c.Since.Local().Format(zoned), openWord, dash(c.To()), "1",
		size(uint64(max(0, c.Sent))), size(uint64(max(0, c.Received))), "-",
	}
}

func egressRow(e chat.EgressEvent) []string {
	return []string{
		e.Time.Local().Format(zoned), string(e.Verdict), dash(e.To()), fmt.Sprint(e.Count),
		size(uint64(max(0, e.Sent))), size(uint64(max(0, e.Received))), dash(e.Why),
	}
}

// egressWords are the totals of a log in a line, with what has been open for longest and the last
// refusal; empty if there is nothing.
func egressWords(l chat.EgressLog, now time.Time) string {
	words := openWords(l.Open, now)
	for _, t := range []struct {
		count int64
		word  chat.EgressVerdict
	}{
		{l.Totals.Allowed, chat.EgressAllowed}, {l.Totals.Refused, chat.EgressRefused},
		{l.Totals.Failed, chat.EgressFailed},
	} {
		if t.count > 0 {
			words = append(words, fmt.Sprintf("%d %s", t.count, t.word))
		}
	}
	var last chat.EgressEvent
	for _, e := range l.Entries {
		if e.Verdict == chat.EgressRefused && !e.Until.Before(last.Until) {
			last = e
		}
	}
	if last.Count > 0 {
		words = append(words, fmt.Sprintf("last refused: %s, %s ago", dash(last.To()),
			age(now.Sub(last.Until))))
	}
	return strings.Join(words, ", ")
}

func openWords(o chat.EgressOpen, now time.Time) []string {
	switch {
	case o.Unknown != "":
		return []string{"open: not known, " + Cell(o.Unknown)}
	case len(o.Connections) == 0:
		return nil
	}
	oldest := o.Connections[0]
	return []string{fmt.Sprintf("%d open, for longest: %s, %s", o.Count, oldest.To(),
		age(now.Sub(oldest.Since)))}
}
