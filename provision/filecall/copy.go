package filecall

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/filewire"
)

// Copy is one regular file on its way to another chat: two calls, and a talk copies between them.
type Copy struct {
	Read, Write *Call
	from, to    chat.ID
}

// NewCopy returns the calls that share a file of the chat from with s.To. talk is called for each
// of the two tools.
func NewCopy(from chat.ID, s chat.Share, talk filewire.Talk) *Copy {
	return &Copy{
		Read:  newCall(filewire.ReadFileTool, filewire.ReadFile{Path: s.Path, Stream: true}, talk),
		Write: newCall(filewire.WriteFileTool, filewire.WriteFile{Path: s.Target(), Stream: true}, talk),
		from:  from, to: s.To,
	}
}

// Do makes the two calls by do, nested. The call of the chat with the lower id is the outer one,
// because each may hold the lock of its chat, and another copy may go the other way. It returns the
// answer of the read. An error names the chat whose call failed first.
func (cp *Copy) Do(
	ctx context.Context, do func(context.Context, *Call) (filewire.Answer, error),
) (filewire.Answer, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var read filewire.Answer
	var readErr, writeErr error
	first, outer, inner := cp.Read, func() {
		if read, readErr = do(ctx, cp.Read); readErr != nil {
			cancel(errOtherSide)
		}
	}, func() {
		if _, writeErr = do(ctx, cp.Write); writeErr != nil {
			cancel(errOtherSide)
		}
	}
	if cp.from > cp.to {
		first, outer, inner = cp.Write, inner, outer
	}
	var within sync.WaitGroup
	talk := first.talk
	first.talk = func(ctx context.Context, t filewire.LiveTool) (filewire.Answer, error) {
		within.Go(inner)
		return talk(ctx, t)
	}
	outer()
	within.Wait()
	return read, cp.failure(readErr, writeErr)
}

// errOtherSide ends one call because the other failed.
var errOtherSide = errors.New("the other side of the copy ended")

// failure returns the first error, and not the one that it caused on the other side. A read whose
// content is not taken failed because of the other side.
func (cp *Copy) failure(readErr, writeErr error) error {
	if readErr != nil && !errors.Is(readErr, errOtherSide) && !unread(readErr) {
		return fmt.Errorf("cannot read from chat %s: %w", cp.from, readErr)
	}
	if writeErr != nil {
		return fmt.Errorf("cannot write to chat %s: %w", cp.to, writeErr)
	}
	return readErr
}
