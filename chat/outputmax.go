package chat

import "fmt"

// Bounds of [RunSpec].OutputMax, in bytes of each stream.
const (
	// DefaultOutputMax is what zero means.
	DefaultOutputMax = 1 << 20
	// MinOutputMax has room for a line of each end and for the one between them.
	MinOutputMax = 1 << 10
	// MaxOutputMax: two streams of it are an answer that a client still reads, with every
	// byte in the longest escape of JSON.
	MaxOutputMax = 4 << 20
	// MaxRunsOutput is what the runs of one chat that are under way may keep in all, both streams
	// counted: what [MaxRuns] keep of which none asks for more.
	MaxRunsOutput = MaxRuns * 2 * DefaultOutputMax
)

// CheckOutputMax reports what cannot be an OutputMax, as [ErrInvalid].
func CheckOutputMax(n int64) error {
	if n == 0 || n >= MinOutputMax && n <= MaxOutputMax {
		return nil
	}
	return fmt.Errorf("cannot run: output_max %d: want %d to %d bytes, or 0 for %d: %w", n, MinOutputMax, MaxOutputMax, DefaultOutputMax, ErrInvalid)
}

// CheckStreamed reports an option of a run that means nothing where the output goes to its caller
// as it comes, as [ErrInvalid]: whoever gives it expects an answer that is bounded.
func (r RunSpec) CheckStreamed() error {
	if r.OutputMax == 0 {
		return nil
	}
	return fmt.Errorf("cannot run: output_max %d: streamed output is passed on whole, and none of it is kept; want output_max 0, or an answer in one piece, or background: %w", r.OutputMax, ErrInvalid)
}
