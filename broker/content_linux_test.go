package broker

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/files"
)

// late is content whose reading fails, a moment after the caller's context has ended: as net/http
// ends the context of a request whose body it cannot read.
type late struct {
	cancel context.CancelFunc
	err    error
}

func (l late) Read([]byte) (int, error) {
	l.cancel()
	time.Sleep(50 * time.Millisecond)
	return 0, l.err
}

// TestLateContent: why content could not be read is the error of its call, also when the end of the
// caller's context is heard of first.
func TestLateContent(t *testing.T) {
	d := serve(t)
	made, _, err := d.Create(operator(t), chat.Spec{ExternalID: "late"})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(operator(t))
	own := errors.New("nothing came")
	_, err = d.WriteFile(ctx, made.ID, files.WriteFile{Path: "f", Stream: true}, late{cancel, own})
	var body *files.BodyError
	if !errors.Is(err, own) || !errors.As(err, &body) {
		t.Errorf("%v, want %v", err, own)
	}
	if err := d.end(t); err != nil {
		t.Error(err)
	}
}
