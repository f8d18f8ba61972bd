package printer

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/chatd/chatd/chat"
)

// Loss is a line for each chat that says what a reap of it would end and remove.
func Loss(w io.Writer, chats []chat.Chat, now time.Time) error {
	for _, ch := range chats {
		words := []string{"size not known"}
		if d := ch.Disk; d != nil {
			words = []string{diskWords(*d, now)}
		}
		words = append(words, "last used "+age(now.Sub(ch.UsedAt))+" ago")
		if len(ch.Work) > 0 {
			words = append(words, "at work: "+WorkWords(ch))
		}
		line := fmt.Sprintf("%s of %s, %s: %s", ch.ID, ch.Owner, chat.Quote(ch.ExternalID),
			strings.Join(words, "; "))
		if err := write(w, Cell(line)+"\n"); err != nil {
			return err
		}
	}
	return nil
}

// WorkWords is what a chat does now, for a line.
func WorkWords(ch chat.Chat) string { return Cell(strings.Join(ch.Work, ", ")) }
