package state

import (
	"bufio"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// The test binary is also the victim: with childDir set it uses that state until it is killed; with
// fullDir set it fills a small disk of its own.
const (
	childDir = "CHATD_STATE_TEST_CHILD"
	fullDir  = "CHATD_STATE_TEST_FULL"
)

func TestMain(m *testing.M) {
	switch {
	case os.Getenv(childDir) != "":
		fmt.Println("ended:", live(os.Getenv(childDir)))
		os.Exit(1)
	case os.Getenv(rotateDir) != "":
		fmt.Println("ended:", dieRotating(os.Getenv(rotateDir), os.Getenv(rotateAt)))
		os.Exit(1)
	case os.Getenv(reserveDir) != "":
		if err := reapOnFullDisk(os.Getenv(reserveDir)); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		os.Exit(0)
	case os.Getenv(fullDir) != "":
		if err := fillDisk(os.Getenv(fullDir)); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// live admits, uses and reaps chats forever, and prints each act once the store has confirmed it.
func live(dir string) error {
	s, err := Open(Options{Dir: dir, BlockSize: 64, AuditMax: 3000})
	if err != nil {
		return err
	}
	for i := 0; ; i++ {
		if i%4 == 0 { // rotates
			if err := s.Flush(); err != nil {
				return err
			}
		}
		if _, _, err := s.EnsureBlock(chat.DefaultProfile); err != nil {
			return err
		}
		r, created, err := s.Admit(chat.Spec{ExternalID: fmt.Sprint(rand.IntN(500))}, event("create", "intent"))
		if err != nil {
			return err
		}
		fmt.Println("admitted", r.ExternalID, r.ID, r.UID, created)
		s.Touch(r.ID, time.Now())
		if r.Phase != chat.Reaping {
			err = s.SetPhase(r.ID, chat.Ready, event("create", "done"))
		}
		if err == nil && i%3 == 0 {
			err = s.SetPhase(r.ID, chat.Reaping, event("reap", "intent"))
			fmt.Println("reaping", r.ExternalID, r.ID, r.UID)
			if err == nil {
				err = s.Forget(r.ID, event("reap", "done"))
			}
			fmt.Println("forgot", r.ExternalID, r.ID, r.UID)
		}
		if err != nil {
			return err
		}
	}
}

// witness holds what the store confirmed to the victims of all rounds.
type witness struct {
	live   map[string]string // external id → "id uid" of chats admitted and not touched since
	unsure map[string]bool   // external ids whose reaping had begun
	given  map[string]string // uid → "external id, id"
}

func (w *witness) hear(t *testing.T, text string) {
	var what, ext, id, uid string
	n, err := fmt.Sscan(text, &what, &ext, &id, &uid)
	must.True(t, n == 4, "the child says %q (%v)", text, err)
	switch what {
	case "admitted":
		if was := w.given[uid]; was != "" && was != ext+", "+id {
			t.Fatalf("uid %s was given to %s and to %s, %s", uid, was, ext, id)
		}
		w.given[uid] = ext + ", " + id
		w.live[ext] = id + " " + uid
	case "reaping":
		w.unsure[ext] = true
	case "forgot":
		delete(w.live, ext)
		delete(w.unsure, ext)
	}
}

func TestKilledAtAnyMoment(t *testing.T) {
	dir := t.TempDir()
	w := &witness{map[string]string{}, map[string]bool{}, map[string]string{}}
	for round := range 25 {
		killOne(t, dir, w, 5+rand.IntN(40), time.Duration(rand.IntN(3000))*time.Microsecond)
		must.True(t, !t.Failed(), "round %d", round)
	}
	t.Logf("%d uids given, %d chats alive, %d between", len(w.given), len(w.live), len(w.unsure))
}

// killOne starts a child, kills it shortly after a number of lines, and compares its output with
// the state.
func killOne(t *testing.T, dir string, w *witness, after int, delay time.Duration) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childDir+"="+dir)
	out := must.Get(cmd.StdoutPipe())(t)
	must.Do(t, cmd.Start())
	// a reaping without forgot may or may not have happened
	in := bufio.NewScanner(out)
	for n := 0; in.Scan(); n++ {
		w.hear(t, in.Text())
		if n == after {
			time.AfterFunc(delay, func() { _ = cmd.Process.Signal(syscall.SIGKILL) })
		}
	}
	err := cmd.Wait()
	must.True(t, err != nil && strings.Contains(err.Error(), "killed"), "the child ended by itself: %v", err)
	s := must.Get(Open(Options{Dir: dir, BlockSize: 64, AuditMax: 3000}))(t)
	w.compare(t, s)
	expect.NoError(t, s.Close())
}

func (w *witness) compare(t *testing.T, s *Store) {
	text := verified(t, s)
	for ext, want := range w.live {
		r, err := s.Find("bridge", ext)
		got := fmt.Sprint(r.ID, " ", r.UID)
		if w.unsure[ext] && err != nil {
			delete(w.live, ext) // forgotten, and killed before printing it
		} else if err != nil || got != want {
			t.Errorf("chat %s: %s, %v; it was told %s", ext, got, err, want)
		}
		delete(w.unsure, ext)
	}
	for _, r := range s.All() {
		w.given[fmt.Sprint(r.UID)] = r.ExternalID + ", " + string(r.ID) // admitted, and killed before printing it
	}
	created := map[string]int{}
	for _, text := range lines(text) {
		var l line
		must.Do(t, json.Unmarshal([]byte(text), &l))
		if l.Action == "create" && l.Outcome == "intent" {
			created[fmt.Sprint(l.UID)]++
		}
	}
	for uid, who := range w.given {
		if created[uid] != 1 {
			t.Errorf("uid %s of %s: %d create intents in the log, want 1", uid, who, created[uid])
		}
	}
}

// TestFullDisk: on a full disk no change is half done or confirmed, and changes succeed when there
// is room again.
func TestFullDisk(t *testing.T) {
	must.Root(t, "changes owners or mounts")
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), fullDir+"="+t.TempDir())
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	} else {
		t.Logf("%s", out)
	}
}

// fillDisk runs in a mount namespace of its own, which the kernel takes away
// with the process and its disk.
func fillDisk(dir string) error {
	if err := syscall.Mount("none", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""); err != nil {
		return err
	}
	if err := syscall.Mount("state", dir, "tmpfs", 0, "size=1m,mode=0700"); err != nil {
		return err
	}
	leastFree = 0 // what if it is full all the same
	s, err := Open(Options{Dir: dir, AuditMax: 50 << 10})
	if err != nil {
		return err
	}
	if _, _, err := s.EnsureBlock(chat.DefaultProfile); err != nil {
		return err
	}
	if err := s.fillAndGoOn(dir + "/junk"); err != nil {
		return err
	}
	return s.Close()
}

func (s *Store) fillAndGoOn(junk string) error {
	acknowledged := map[uint32]bool{}
	for round := range 5 {
		if err := os.WriteFile(junk, make([]byte, 2<<20), 0o600); err == nil {
			return fmt.Errorf("the disk took 2 MB")
		}
		var full error
		for i := 0; full == nil && i < 5000; i++ {
			r, created, err := s.Admit(chat.Spec{ExternalID: fmt.Sprint(round, " ", i)}, event("create", "intent"))
			if full = err; err == nil && (!created || acknowledged[r.UID]) {
				return fmt.Errorf("%+v created %v, uid told %v", r, created, acknowledged[r.UID])
			}
			acknowledged[r.UID] = acknowledged[r.UID] || err == nil
		}
		fmt.Printf("round %d: %d chats, then: %v\n", round, s.Len(), full)
		if full == nil || s.broken != nil {
			return fmt.Errorf("never full, or broken by it: %v", s.broken)
		}
		for err := error(nil); err == nil; {
			if err = s.Audit(event("run", "intent")); err != nil {
				fmt.Println("audit:", err)
			}
		}
		if err := os.Remove(junk); err != nil {
			return err
		}
		lines, err := s.VerifyAudit()
		if err != nil {
			return err
		}
		fmt.Printf("round %d: %d audit lines hold\n", round, lines)
		for i := range 20 {
			r, created, err := s.Admit(chat.Spec{ExternalID: fmt.Sprint(round, " with room ", i)}, event("create", "intent"))
			if err != nil || !created || acknowledged[r.UID] {
				return fmt.Errorf("with room again: %+v created %v, uid told %v, %w", r, created, acknowledged[r.UID], err)
			}
			acknowledged[r.UID] = true
		}
	}
	delete(acknowledged, 0)
	x, _, _, err := load(s.db)
	if err != nil || len(x.byID) != s.Len() || s.Len() != len(acknowledged) {
		return fmt.Errorf("%d chats on disk, %d in memory, %d told: %v", len(x.byID), s.Len(), len(acknowledged), err)
	}
	return nil
}
