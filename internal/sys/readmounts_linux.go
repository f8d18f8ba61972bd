package sys

import (
	"fmt"
	"os"
)

// ReadMounts reads a mountinfo file, as /proc/self/mountinfo.
func ReadMounts(file string) ([]Mount, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("cannot read the host's mounts: %w", err)
	}
	return ParseMounts(string(text))
}
