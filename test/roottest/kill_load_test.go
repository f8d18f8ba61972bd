package roottest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/chatd/chatd/chat"
)

// TestKilledUnderLoad kills chatd's processes at random while callers use a dozen chats, each time
// one kind of them. Then every chat is whole or gone, as the independent checker sees the host;
// no uid comes twice, and what a run wrote and acknowledged is there. CHATD_TEST_KILLS is how
// often.
func TestKilledUnderLoad(t *testing.T) {
	needsRoot(t)
	leaveOrphansToInit(t)
	kills := 25
	if testing.Short() {
		kills = 5
	}
	if s := os.Getenv("CHATD_TEST_KILLS"); s != "" {
		var err error
		kills, err = strconv.Atoi(s)
		must(t, err)
	}
	opt := options(t)
	config := soakConfig(t, opt)
	l := &underLoad{history: history{t: t, opt: opt, config: config, given: map[uint32]chat.ID{}},
		acknowledged: map[string]map[int]bool{}}
	l.daemon = startDaemonOf(t, opt, config, "")
	defer l.reapAll()
	processes := []string{"root", "front", "egress", "enforcer"}
	failed := 0
	for i := range kills {
		failed += l.round(processes[i%len(processes)])
		l.compare(t)
		if t.Failed() {
			t.Fatalf("after %d kills", i+1)
		}
	}
	t.Logf("%d kills, %d calls, of which %d failed, %d uids", kills, l.calls, failed, len(l.given))
}

// underLoad is a daemon that many use and somebody kills.
type underLoad struct {
	history
	mu sync.Mutex
	// acknowledged are the numbers that a chat wrote, by external id and uid.
	acknowledged map[string]map[int]bool
}

// round lets callers use chats, kills in the middle, and returns how many calls failed.
func (l *underLoad) round(which string) (failed int) {
	ctx, leave := context.WithCancel(l.t.Context())
	defer leave()
	victims, d := l.victims(which), l.daemon
	var wg sync.WaitGroup
	for i := range 12 {
		wg.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				err := l.use(ctx, d, fmt.Sprint("load ", i), modelNames[i%len(modelNames)])
				l.mu.Lock()
				l.calls++
				if err != nil {
					failed++
				}
				l.mu.Unlock()
				if err != nil {
					time.Sleep(10 * time.Millisecond)
				}
			}
		})
	}
	time.Sleep(time.Duration(100+rand.IntN(400)) * time.Millisecond)
	signalAll(victims, syscall.SIGKILL)
	time.Sleep(time.Duration(rand.IntN(100)) * time.Millisecond)
	leave()
	wg.Wait()
	l.again(which)
	return failed
}

// use makes one call. What it may answer under a kill is any error.
func (l *underLoad) use(ctx context.Context, d *daemon, external, profile string) error {
	c, _, err := d.Create(ctx, chat.Spec{ExternalID: external, Profile: profile})
	if err != nil {
		return err
	}
	l.mu.Lock()
	if was, ok := l.given[c.UID]; ok && was != c.ID {
		l.t.Errorf("uid %d was chat %s before, and is chat %s", c.UID, was, c.ID)
	}
	l.given[c.UID] = c.ID
	l.mu.Unlock()
	switch rand.IntN(6) {
	case 0:
		return second(d.Sleep(ctx, c.ID))
	case 1:
		return d.Reap(ctx, c.ID)
	case 2:
		return second(d.StartRun(ctx, c.ID, chat.RunSpec{Command: "sleep 1000"}))
	}
	return l.write(ctx, d, c)
}

// write lets a run append a number to a file, and remembers it if it was acknowledged.
func (l *underLoad) write(ctx context.Context, d *daemon, c chat.Chat) error {
	n := rand.Int()
	r, err := d.Run(ctx, c.ID, chat.RunSpec{Command: fmt.Sprintf("echo %d >> numbers", n)})
	if err != nil || r.Exit != 0 {
		return errors.Join(err, fmt.Errorf("exit %d", r.Exit))
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	key := l.home(c)
	if l.acknowledged[key] == nil {
		l.acknowledged[key] = map[int]bool{}
	}
	l.acknowledged[key][n] = true
	return nil
}

// home is unique among all homes that a conversation ever has: a new one has another uid.
func (l *underLoad) home(c chat.Chat) string { return fmt.Sprint(c.ExternalID, " ", c.UID) }

// compare compares the host with what the daemon says when nobody calls it.
func (l *underLoad) compare(t *testing.T) {
	t.Helper()
	var said []string
	for end := time.Now().Add(settled); ; time.Sleep(50 * time.Millisecond) {
		page, err := l.List(t.Context(), chat.Filter{Limit: 1000})
		must(t, err)
		var all []expected
		for _, c := range page.Chats {
			// A create whose caller went is finished by the next call or within a minute.
			all = append(all, expected{chat: c, unsure: c.Phase == chat.Creating})
			if c.Phase == chat.Reaping {
				said = append(said, c.ExternalID+" is being reaped")
			}
		}
		if said = append(said, differences(t, l.opt, all)...); len(said) == 0 {
			l.check(t, page.Chats)
			return
		}
		if time.Now().After(end) {
			t.Fatalf("at %s the host differs:\n%s", time.Now().Format(time.TimeOnly), strings.Join(said, "\n"))
		}
		said = nil
	}
}

// check looks for the numbers that were acknowledged.
func (l *underLoad) check(t *testing.T, chats []chat.Chat) {
	t.Helper()
	for _, c := range chats {
		b, err := os.ReadFile(c.Home + "/numbers")
		must(t, ignoreGone(err))
		lines := "\n" + string(b)
		for n := range l.acknowledged[l.home(c)] {
			if !strings.Contains(lines, fmt.Sprintf("\n%d\n", n)) {
				t.Errorf("%s: %d was acknowledged, and is not in its file", c.ExternalID, n)
			}
		}
	}
}
