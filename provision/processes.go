package provision

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"os"
	"slices"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/sys"
)

// processStates are the states of proc_pid_stat(5), except for sleeping.
var processStates = map[byte]chat.ProcessState{
	'R': chat.ProcessRunning, 'D': chat.ProcessBlocked,
	'T': chat.ProcessStopped, 't': chat.ProcessStopped,
	'Z': chat.ProcessEnded, 'X': chat.ProcessEnded,
}

// Processes lists the processes of a chat's session; one that is asleep has none.
func (m *Manager) Processes(ctx context.Context, id chat.ID) (chat.Processes, error) {
	rec, err := m.reach(ctx, id)
	if err != nil {
		return chat.Processes{}, err
	}
	var runs map[int]string
	if m.session(id) != nil {
		runs, err = m.groups.Processes(id)
	}
	if err != nil && !errors.Is(err, chat.ErrNotFound) { // it may have gone to sleep meanwhile
		return chat.Processes{}, err
	}
	return readProcesses(runs, rec.UID)
}

// readProcesses reads the processes whose runs are known. It reads no command line: that read
// waits for memory which the chat can keep busy. A process of another uid is not shown: it is
// chatd's own on its way into the session, or has the number of one that has ended.
func readProcesses(runs map[int]string, uid uint32) (out chat.Processes, err error) {
	pids := slices.Sorted(maps.Keys(runs))
	out.LeftOut = max(0, len(pids)-chat.MaxProcesses)
	out.Processes = []chat.Process{}
	for _, pid := range pids[:len(pids)-out.LeftOut] {
		p, rerr := sys.ReadProcess(pid)
		if errors.Is(rerr, os.ErrNotExist) || rerr == nil && p.UID != uid {
			continue
		}
		err = errors.Join(err, rerr)
		out.Processes = append(out.Processes, chat.Process{
			PID: p.Inner, Name: p.Name, State: cmp.Or(processStates[p.State], chat.ProcessSleeping),
			MemoryBytes: p.Memory, CPU: chat.Duration(p.CPU), Run: runs[pid],
		})
	}
	slices.SortFunc(out.Processes, func(a, b chat.Process) int { return cmp.Compare(a.PID, b.PID) })
	return out, err
}
