package chat

// Bounds of [RunSpec].OutputMax, in bytes of each stream.
const (
	// DefaultOutputMax replaces zero.
	DefaultOutputMax = 1 << 20
	// MinOutputMax leaves room for a line of the head, one of the tail, and the line between them.
	MinOutputMax = 1 << 10
	// MaxOutputMax keeps an answer with two such streams, each byte in JSON's longest escape,
	// within what a client reads.
	MaxOutputMax = 4 << 20
	// MaxRunsOutput is how much output the current runs of one chat may keep in total: both streams
	// of [MaxRuns] runs with the default.
	MaxRunsOutput = MaxRuns * 2 * DefaultOutputMax
)

// CheckOutputMax reports an invalid OutputMax, as [ErrInvalid].
func CheckOutputMax(n int64) error {
	if n == 0 || n >= MinOutputMax && n <= MaxOutputMax {
		return nil
	}
	return Invalid("cannot run: output_max %d: want %d to %d bytes, or 0 for %d", n, MinOutputMax,
		MaxOutputMax, DefaultOutputMax)
}

// CheckStreamed refuses, as [ErrInvalid], the option of a run that does not apply to streamed
// output: its caller expects a bounded answer.
func (r RunSpec) CheckStreamed() error {
	if r.OutputMax == 0 {
		return nil
	}
	return Invalid("cannot run: output_max %d: streamed output is passed on whole, and none of it is kept; want output_max 0, or an answer in one piece, or background",
		r.OutputMax)
}
