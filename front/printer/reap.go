package printer

import (
	"fmt"
	"strings"
	"time"

	"github.com/chatd/chatd/chat"
)

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
