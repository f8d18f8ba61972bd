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
	"testing"
	"time"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// TestKilledUnderLoad kills chatd's processes at random while callers use a dozen chats, each time
// one kind of them. Then every chat is whole or gone, as the independent checker sees the host;
// no uid comes twice, what a run wrote and acknowledged is there, and every archive is whole.
// CHATD_TEST_KILLS is how often, CHATD_TEST_SEED what decides on the moments and the victims.
func TestKilledUnderLoad(t *testing.T) {
	kills, seed := 24, rand.Uint64()
	if testing.Short() {
		kills = len(loadKinds)
	}
	for name, set := range map[string]func(uint64){
		"CHATD_TEST_KILLS": func(n uint64) { kills = int(n) },
		"CHATD_TEST_SEED":  func(n uint64) { seed = n },
	} {
		if s := os.Getenv(name); s != "" {
			n := must.Get(strconv.ParseUint(s, 10, 64))(t)
			set(n)
		}
	}
	t.Logf("seed %d", seed)
	opt := keepsArchives(t, options(t))
	config := archiveConfig(t, opt, modelProfiles)
	l := &underLoad{history: history{t: t, opt: opt, config: config, given: map[uint32]chat.ID{}},
		acknowledged: map[string]map[int]bool{}, archiving: map[chat.ID][]map[int]bool{},
		rand: rand.New(rand.NewPCG(seed, 0)), killed: map[string]int{}}
	l.daemon = startDaemonOf(t, opt, config, "")
	defer l.reapAll()
	failed := 0
	for i := range kills {
		failed += l.round(loadKinds[i%len(loadKinds)])
		l.compare(t)
		l.checkArchives(t)
		must.True(t, !t.Failed(), "after %d kills", i+1)
	}
	t.Logf("%d kills, of %v, %d calls, of which %d failed, %d archives, %d uids",
		kills, l.killed, l.calls, failed, l.archives, len(l.given))
	for _, kind := range loadKinds {
		if kills >= len(loadKinds) && l.killed[kind] == 0 {
			t.Errorf("no process was killed of the kind %s", kind)
		}
	}
}

// underLoad is a daemon that many use and somebody kills.
type underLoad struct {
	history
	mu sync.Mutex
	// acknowledged are the numbers that a chat wrote, by external id and uid.
	acknowledged map[string]map[int]bool
	// archiving are the numbers that chats had written when they were archived in this round.
	archiving map[chat.ID][]map[int]bool
	rand      *rand.Rand
	killed    map[string]int // processes, by kind
	archives  int
}

// round lets callers use chats, kills in the middle, and returns how many calls failed.
func (l *underLoad) round(which string) (failed int) {
	ctx, leave := context.WithCancel(l.t.Context())
	defer leave()
	d := l.daemon
	var wg sync.WaitGroup
	for i := range 12 {
		wg.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				err := l.use(ctx, d, which, fmt.Sprint("load ", i), modelNames[i%len(modelNames)])
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
	time.Sleep(time.Duration(100+l.rand.IntN(400)) * time.Millisecond)
	l.killOne(which)
	time.Sleep(time.Duration(l.rand.IntN(100)) * time.Millisecond)
	leave()
	wg.Wait()
	l.again(which)
	return failed
}

// use makes one call. What it may answer under a kill is any error.
func (l *underLoad) use(ctx context.Context, d *daemon, which, external, profile string) error {
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
	verbs := 10
	if which == "archiver" {
		verbs = 3 // so that there are many to choose from
	}
	switch rand.IntN(verbs) {
	case 2, 3:
		return l.pack(ctx, d, c)
	case 0:
		return expect.Err(d.Sleep(ctx, c.ID))
	case 1, 4:
		return d.Reap(ctx, c.ID)
	case 5, 6:
		return expect.Err(d.StartRun(ctx, c.ID, chat.RunSpec{Command: "sleep 1000"}))
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
		page := must.Get(l.List(t.Context(), chat.Filter{Limit: 1000}))(t)
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
		must.Do(t, ignoreGone(err))
		for _, n := range missingOf(l.acknowledged[l.home(c)], b) {
			t.Errorf("%s: %d was acknowledged, and is not in its file", c.ExternalID, n)
		}
	}
}
