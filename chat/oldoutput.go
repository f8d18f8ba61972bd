package chat

// MaxOutput is the most that is kept of each stream of a run, in bytes.
const MaxOutput = DefaultOutputMax
