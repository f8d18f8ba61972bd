package main

import (
	"context"
	"encoding/json"
	"io"
	"sync"
	"time"

	"github.com/chatd/chatd/chat"
)

// line is one line of --report.
type line struct {
	Progress *progress `json:"progress,omitempty"`
	Done     *done     `json:"done,omitempty"`
	Error    *failure  `json:"error,omitempty"`
}

type progress struct {
	Entries int64 `json:"entries"`
	Bytes   int64 `json:"bytes"`
}

type failure struct {
	Text string `json:"text"`
	Kind string `json:"kind"`
}

// progressEvery is the time between two lines of progress.
const progressEvery = time.Second

// reported does the command and writes lines of JSON; it returns the exit code.
func reported(o options, errs io.Writer) int {
	to := json.NewEncoder(errs)
	doing, over := context.WithCancel(context.Background())
	var telling sync.WaitGroup
	telling.Go(func() {
		chat.Every(doing, progressEvery, func() {
			now := progress{o.Meter.Entries.Load(), o.Meter.Bytes.Load()}
			_ = to.Encode(line{Progress: &now}) // its reader may be gone: the last line says so
		})
	})
	d, err := o.do()
	over()
	telling.Wait()
	last := line{Done: &d}
	code, kind := kindOf(err)
	if err != nil {
		last = line{Error: &failure{chat.ErrorText(err), kind}}
	}
	if err := to.Encode(last); err != nil && code == 0 {
		return 1
	}
	return code
}
