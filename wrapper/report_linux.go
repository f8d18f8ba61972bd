package wrapper

import (
	"encoding/json"
	"os"
	"strings"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/shims"
	"golang.org/x/sys/unix"
)

// maxReported bounds the command line in a denial, in bytes.
const maxReported = 1 << 10

// reportDenial writes one line into the fifo. A fifo that is full or has no reader does not change
// the denial, so errors are not reported.
func reportDenial(s shim, rule string) {
	argv := strings.Join(s.argv, " ")
	d := shims.ShimDenial{Program: s.name, Argv: argv[:min(len(argv), maxReported)], Rule: rule[:min(len(rule), maxReported)]}
	line, err := json.Marshal(d)
	if err != nil || len(line)+1 > shims.MaxShimDenial {
		line, _ = json.Marshal(shims.ShimDenial{Program: s.name, Rule: chat.Quote(rule)})
	}
	fd, err := unix.Open(shims.InsideDenials, unix.O_WRONLY|unix.O_NONBLOCK|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0)
	if err != nil {
		return
	}
	f := os.NewFile(uintptr(fd), shims.InsideDenials)
	_, _ = f.Write(append(line, '\n'))
	_ = f.Close()
}
