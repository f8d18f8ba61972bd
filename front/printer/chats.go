package printer

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/chatd/chatd/chat"
)

// wordWidth is how much of an external id or of the labels a table shows; --json has all.
const wordWidth = 32

// Chats is a line for each chat. counted is what its home was counted to have, in place of what
// chatd knows of all its files; nil counts nothing.
func Chats(chats []chat.Chat, counted map[chat.ID]uint64, now time.Time) string {
	head := []string{"ID", "USER", "UID", "PROFILE", "AWAKE", "AGE", "IDLE", "MEMORY", "PIDS", "LAYERS",
		"OWNER", "EXTERNAL-ID", "LABELS", "DISK"}
	return list(head, chats, func(ch chat.Chat) []string {
		disk := "-"
		if n, ok := counted[ch.ID]; ok {
			disk = size(n)
		} else if ch.Disk != nil {
			disk = fmt.Sprintf("%s %d%%", size(ch.Disk.Bytes), ch.Disk.Percent)
		}
		return append(chatRow(ch, now), disk)
	})
}

func chatRow(ch chat.Chat, now time.Time) []string {
	memory, pids := "-", "-"
	if ch.Usage != nil {
		memory, pids = size(ch.Usage.MemoryBytes), fmt.Sprint(ch.Usage.Pids)
	}
	return []string{
		string(ch.ID), ch.User, fmt.Sprint(ch.UID), ch.Profile, awakeWord(ch),
		age(now.Sub(ch.CreatedAt)), age(now.Sub(ch.UsedAt)), memory, pids, weakLayers(ch.Layers),
		ch.Owner, cut(ch.ExternalID, wordWidth), dash(cut(labelWords(ch.Labels), wordWidth)),
	}
}

// labelWords are labels as --label takes them.
func labelWords(labels map[string]string) string {
	var words []string
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		words = append(words, key+"="+labels[key])
	}
	return strings.Join(words, ",")
}

// awakeWord is yes or no, or the phase of a chat that is not ready.
func awakeWord(ch chat.Chat) string {
	switch {
	case ch.Phase != chat.Ready:
		return string(ch.Phase)
	case !ch.Awake:
		return "no"
	}
	words := []string{"yes"}
	switch ch.Frozen {
	case chat.FrozenUntilUsed:
		words = append(words, "frozen")
	case chat.FrozenUntilThawed:
		words = append(words, "frozen-until-thawed")
	}
	if len(ch.OldPlan) > 0 {
		words = append(words, "old-plan")
	}
	return strings.Join(words, ",")
}

// Chat is everything about one chat, with what became of its connections.
func Chat(ch chat.Chat, l chat.EgressLog, now time.Time) string {
	rows := [][]string{
		{"id", string(ch.ID)},
		{"user", ch.User},
		{"uid", fmt.Sprint(ch.UID)},
		{"external id", ch.ExternalID},
		{"owner", ch.Owner},
		{"agent", ch.Agent},
		{"profile", ch.Profile},
		{"file rules", dash(ch.FileRules)},
		{"phase", string(ch.Phase)},
		{"awake", awakeWord(ch)},
		{"home", ch.Home},
		{"created", age(now.Sub(ch.CreatedAt)) + " ago"},
		{"used", age(now.Sub(ch.UsedAt)) + " ago"},
		{"limits", limitWords(ch.Limits)},
	}
	add := func(there bool, name string, words func() string) {
		if there {
			rows = append(rows, []string{name, words()})
		}
	}
	add(len(ch.OwnLimits) > 0, "own limits", func() string { return strings.Join(ch.OwnLimits, ", ") })
	add(ch.Frozen != "", "frozen", func() string { return strings.TrimPrefix(ch.Frozen.Words(), "frozen ") })
	add(len(ch.OldPlan) > 0, "old plan", func() string {
		return strings.Join(ch.OldPlan, ", ") + "; until the next wake"
	})
	add(ch.Usage != nil, "usage", func() string { return usageWords(*ch.Usage) })
	add(ch.Archiving != nil, "archiving", func() string { return archiveWords(*ch.Archiving) })
	add(ch.Disk != nil, "disk", func() string { return diskWords(*ch.Disk, now) })
	for _, line := range append(egressLines(ch), egressWords(l, now)) {
		add(line != "", "egress", func() string { return line })
	}
	for _, k := range slices.Sorted(maps.Keys(ch.Labels)) {
		rows = append(rows, []string{"label", k + "=" + ch.Labels[k]})
	}
	if len(ch.Layers) == 0 {
		return table(rows)
	}
	return table(rows) + "\n" + layers(ch.Layers)
}

func usageWords(u chat.Usage) string {
	return fmt.Sprintf("memory %s (peak %s), pids %d, cpu %s; "+
		"killed for memory %d, forks refused %d, throttled %d",
		size(u.MemoryBytes), size(u.MemoryPeak), u.Pids, u.CPU, u.OOMKills, u.PidsRefused,
		u.Throttled)
}

func diskWords(d chat.DiskUsage, now time.Time) string {
	words := fmt.Sprintf("%s, %d inodes, %d%%", size(d.Bytes), d.Inodes, d.Percent)
	if d.CountedAt != nil {
		words += ", counted " + age(now.Sub(*d.CountedAt)) + " ago"
	}
	return words
}

// limitWords lists the limits by their keys in the config. One that may be left out of JSON is
// left out where it is 0: it bounds nothing then.
func limitWords(l chat.Limits) string {
	var words []string
	all := reflect.ValueOf(l)
	for _, f := range reflect.VisibleFields(all.Type()) {
		v := all.FieldByIndex(f.Index)
		if f.Anonymous || v.IsZero() && strings.HasSuffix(f.Tag.Get("json"), ",omitempty") {
			continue
		}
		word := fmt.Sprint(v)
		if f.Tag.Get("unit") == "bytes" {
			word = size(v.Uint())
		}
		words = append(words, f.Tag.Get("yaml")+" "+word)
	}
	return strings.Join(words, ", ")
}

// Labels is a line for each label. A key has only characters that a terminal may get.
func Labels(labels map[string]string) (text string) {
	for _, k := range slices.Sorted(maps.Keys(labels)) {
		text += lines(k + "=" + labels[k])
	}
	return text
}

// Egress is a line for each destination of a chat, and for each that was taken away.
func Egress(ch chat.Chat) string { return lines(egressLines(ch)...) }

func egressLines(ch chat.Chat) (lines []string) {
	for _, a := range ch.Egress {
		line := a.String()
		if slices.Contains(ch.EgressAdd, a) {
			line += "  (added)"
		}
		lines = append(lines, line)
	}
	for _, a := range ch.EgressRemove {
		lines = append(lines, a.String()+"  (taken away)")
	}
	return lines
}

// Shared is what went from one chat to another.
func Shared(s chat.Shared) string {
	return lines(fmt.Sprintf("%s  %d bytes to %s", s.SHA256, s.Bytes, s.ToPath))
}

// Changed is a line for what holds now, one for what waits for the next wake, and one for what is
// tried again.
func Changed(c *chat.Changed) (lines string) {
	if c == nil {
		return ""
	}
	for _, l := range []struct {
		when string
		what []string
	}{
		{"now", c.Now}, {"at the next wake", c.NextWake},
		{"not yet, tried again each minute", c.Retried},
	} {
		if len(l.what) > 0 {
			lines += fmt.Sprintf("%s: %s\n", l.when, strings.Join(l.what, ", "))
		}
	}
	if c.Why != "" {
		lines += "why: " + Escape(c.Why) + "\n"
	}
	return lines
}

// Loss is a line for each chat that says what a reap of it would end and remove.
func Loss(chats []chat.Chat, now time.Time) (text string) {
	for _, ch := range chats {
		words := []string{"size not known"}
		if d := ch.Disk; d != nil {
			words = []string{diskWords(*d, now)}
		}
		words = append(words, "last used "+age(now.Sub(ch.UsedAt))+" ago")
		if len(ch.Work) > 0 {
			words = append(words, "at work: "+WorkWords(ch))
		}
		text += lines(fmt.Sprintf("%s of %s, %s: %s", ch.ID, ch.Owner, chat.Quote(ch.ExternalID),
			strings.Join(words, "; ")))
	}
	return text
}

// WorkWords is what a chat does now, for a line.
func WorkWords(ch chat.Chat) string { return Cell(strings.Join(ch.Work, ", ")) }
