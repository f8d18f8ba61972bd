package layers

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/test/expect"
)

// TestDisk: on is only where every directory was tried; a host without quotas, or with one that did
// not hold, is weaker, with a fix, and not missing.
func TestDisk(t *testing.T) {
	homes, tmp := []string{"/homes"}, []string{"/tmp"}
	broken := errors.New("it did not hold")
	for _, c := range []struct {
		tried, counted []string
		err            error
		state          chat.LayerState
		by             string
	}{
		{homes, nil, nil, chat.LayerOn, "user quotas"},
		{homes, tmp, nil, chat.LayerWeaker, "user quotas, counts of chatd"},
		{nil, append(homes, tmp...), nil, chat.LayerWeaker, "counts of chatd"},
		{nil, nil, broken, chat.LayerWeaker, "counts of chatd"},
		{nil, nil, unix.ENOSPC, chat.LayerOn, "user quotas"},
		{nil, nil, unix.EMFILE, chat.LayerUnknown, "user quotas"},
		{nil, nil, ErrLeftOut, chat.LayerOff, ""},
	} {
		l := Disk(c.tried, c.counted, c.err)
		expect.True(t, l.State == c.state && l.By == c.by && l.Name == chat.LayerDisk, "%+v is %+v", c, l)
		expect.True(t, l.State != chat.LayerWeaker || strings.Contains(l.Fix, "usrquota"),
			"%+v has no fix", l)
		named := slices.IndexFunc(c.counted, func(dir string) bool {
			return !strings.Contains(l.Probe, dir)
		})
		expect.True(t, named < 0, "%+v does not name %v", l, c.counted)
	}
}
