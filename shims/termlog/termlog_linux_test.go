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
)

// TestPassOn: a reader that does not read delays no writer; when it reads, it is told how much it
// missed, and gets the end.
func TestPassOn(t *testing.T) {
	name := filepath.Join(t.TempDir(), "fifo")
	must(t, unix.Mkfifo(name, 0o600))
	out, err := unix.Open(name, unix.O_RDWR|unix.O_NONBLOCK, 0)
	must(t, err)
	inR, inW, err := os.Pipe()
	must(t, err)
	defer inR.Close() // not before: a number does not keep it open
	ended := make(chan error, 1)
	go func() {
		defer unix.Close(out)
		ended <- passOn(int(inR.Fd()), out, newBacklog(1000))
	}()
	r, err := os.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK, 0)
	must(t, err)
	defer r.Close()
	flood := bytes.Repeat([]byte("0123456789"), 100_000)
	if _, err := inW.Write(flood); err != nil { // returns though nobody reads
		t.Fatal(err)
	}
	_, err = inW.Write([]byte("the end"))
	must(t, err)
	must(t, inW.Close())
	must(t, r.SetReadDeadline(time.Now().Add(time.Minute)))
	got, err := io.ReadAll(r)
	must(t, err)
	must(t, <-ended)
	text, lost := string(got), 0
	for _, note := range leftOut.FindAllStringSubmatch(text, -1) {
		n, err := strconv.Atoi(note[1])
		must(t, err)
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

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
