package termlog

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/test/must"
)

// TestPassOn: a reader that does not read delays no writer; when it reads, it is told how much it
// missed, and gets the end.
func TestPassOn(t *testing.T) {
	name := filepath.Join(t.TempDir(), "fifo")
	must.Do(t, unix.Mkfifo(name, 0o600))
	out := must.Get(unix.Open(name, unix.O_RDWR|unix.O_NONBLOCK, 0))(t)
	inR, inW, err := os.Pipe()
	must.Do(t, err)
	defer inR.Close() // not before: a number does not keep it open
	ended := make(chan error, 1)
	go func() {
		defer unix.Close(out)
		ended <- passOn(int(inR.Fd()), out, newBacklog(1000))
	}()
	r := must.Get(os.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK, 0))(t)
	defer r.Close()
	flood := bytes.Repeat([]byte("0123456789"), 100_000)
	if _, err := inW.Write(flood); err != nil { // returns though nobody reads
		t.Fatal(err)
	}
	must.Get(inW.Write([]byte("the end")))(t)
	must.Do(t, inW.Close())
	must.Do(t, r.SetReadDeadline(time.Now().Add(time.Minute)))
	got := must.Get(io.ReadAll(r))(t)
	must.Do(t, <-ended)
	text, lost := string(got), 0
	for _, note := range leftOut.FindAllStringSubmatch(text, -1) {
		n := must.Get(strconv.Atoi(note[1]))(t)
		lost += n
	}
	kept := len(leftOut.ReplaceAllString(text, ""))
	all := len(flood) + len("the end")
	if lost == 0 || kept+lost != all || !strings.HasSuffix(text, "56789the end") {
		t.Errorf("%d bytes were read, %d are said to be lost, of %d; the last are %q", kept, lost,
			all, text[max(0, len(text)-100):])
	}
}

var leftOut = regexp.MustCompile("\r\n\\[chatd left ([0-9]+) bytes out\\]\r\n")
