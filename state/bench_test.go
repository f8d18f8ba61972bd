package state

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
	"go.etcd.io/bbolt"
)

// seeded is a store that holds n chats, written in one transaction.
func seeded(t testing.TB, n int) *Store {
	t.Helper()
	s := fresh(t)
	must.Do(t, s.db.Update(func(tx *bbolt.Tx) error {
		for i := range n {
			ext := fmt.Sprintf("telegram:-100%010d@supergroup", i)
			id, err := chat.DeriveID(s.key, "bridge", ext, 0)
			if err != nil {
				return err
			}
			at := time.Unix(1_700_000_000, int64(i)*1_000_003).UTC()
			r := Record{ID: id, UID: DefaultLow + uint32(i), ExternalID: ext, Owner: "bridge", Agent: "main", Profile: "default",
				Phase: chat.Ready, Account: "userdb", CreatedAt: at, UsedAt: at, Labels: map[string]string{"platform": "telegram", "title": "family group"}}
			if err := putRecord(tx, &r); err != nil {
				return err
			}
		}
		return putBlock(tx, block{Profile: "default", Range: s.blocks[0].Range, Next: DefaultLow + uint32(n)})
	}))
	return again(t, s)
}

// The daemon's bound is 60 MB for 10,000 chats; the records may take a quarter of it.
func TestMemoryOfTenThousandChats(t *testing.T) {
	s := seeded(t, 10_000)
	dir := s.opts.Dir
	must.Do(t, s.Close())
	s = nil
	before := heap()
	s = open(t, Options{Dir: dir})
	used := heap() - before
	t.Logf("10,000 chats with two labels take %.1f MB, %d bytes each", float64(used)/1e6, used/10_000)
	if used > 15<<20 || s.Len() != 10_000 {
		t.Errorf("%d chats take %d bytes, want at most 15 MiB", s.Len(), used)
	}
	runtime.KeepAlive(s)
}

func heap() int64 {
	var m runtime.MemStats
	for range 3 {
		runtime.GC()
	}
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

var sizes = []int{0, 1_000, 10_000}

// BenchmarkAdmit is one new chat: record, counter and intent in one commit. The
// floor in the same run is BenchmarkFsyncPage; bbolt makes two fsyncs a commit.
func BenchmarkAdmit(b *testing.B) {
	for _, n := range sizes {
		b.Run(fmt.Sprintf("chats=%d", n), func(b *testing.B) {
			s := seeded(b, n)
			for i := 0; b.Loop(); i++ {
				must.Do(b, expect.Err(s.EnsureBlock(chat.DefaultProfile)))
				must.Do(b, expect.Err(s.Admit(chat.Spec{ExternalID: fmt.Sprint("new ", i)}, event("create", "intent"))))
			}
		})
	}
}

// BenchmarkFsyncPage writes and syncs one page of a file, once and twice.
func BenchmarkFsyncPage(b *testing.B) {
	for syncs := 1; syncs <= 2; syncs++ {
		b.Run(fmt.Sprintf("syncs=%d", syncs), func(b *testing.B) {
			f := must.Get(os.Create(filepath.Join(b.TempDir(), "page")))(b)
			page := make([]byte, 4096)
			for i := 0; b.Loop(); i++ {
				for range syncs {
					page[0]++
					must.Get(f.WriteAt(page, int64(i%64)*4096))(b)
					must.Do(b, f.Sync())
				}
			}
			must.Do(b, f.Close())
		})
	}
}

// BenchmarkAdmitAgain is the usual case: the chat exists.
func BenchmarkAdmitAgain(b *testing.B) {
	for _, n := range sizes {
		b.Run(fmt.Sprintf("chats=%d", n), func(b *testing.B) {
			s := seeded(b, n)
			admit(b, s, "there")
			for b.Loop() {
				if _, created, err := s.Admit(chat.Spec{ExternalID: "there"}, event("create", "intent")); err != nil || created {
					b.Fatal(created, err)
				}
			}
		})
	}
}

// BenchmarkGet is a look-up by id.
func BenchmarkGet(b *testing.B) {
	for _, n := range sizes {
		b.Run(fmt.Sprintf("chats=%d", n), func(b *testing.B) {
			s := seeded(b, n)
			id := admit(b, s, "there").ID
			for b.Loop() {
				must.Get(s.Get(id))(b)
			}
		})
	}
}

// BenchmarkAudit is one event without a commit.
func BenchmarkAudit(b *testing.B) {
	s := fresh(b)
	e := Event{Action: "run", Outcome: "intent", Chat: "0123456789abcdef", UID: DefaultLow, Caller: bridge, Detail: map[string]string{"command": "true"}}
	for b.Loop() {
		must.Do(b, s.Audit(e))
	}
}

// BenchmarkOpen reads all records, as at a start.
func BenchmarkOpen(b *testing.B) {
	for _, n := range sizes {
		b.Run(fmt.Sprintf("chats=%d", n), func(b *testing.B) {
			s := seeded(b, n)
			for b.Loop() {
				s = again(b, s)
			}
		})
	}
}
