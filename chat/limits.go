package chat

import (
	"math"
	"strconv"
	"strings"
	"time"
)

// Limits bound what one awake chat may take from the host. The defaults are
// those of the picortex isolation page: 256 MB, 200 pids, a quarter of a CPU.
//
// Config, API and chatd show take the keys, and unit:"bytes" for a size, from the tags of the
// fields alone.
type Limits struct {
	// MemoryMax is memory.max in bytes: page cache and kernel memory count too.
	MemoryMax uint64 `json:"memory_max" yaml:"memory_max" unit:"bytes"`
	// SwapMax is memory.swap.max in bytes; 0 means no swap.
	SwapMax uint64 `json:"swap_max" yaml:"swap_max" unit:"bytes"`
	// PidsMax is pids.max: processes and threads together.
	PidsMax uint64 `json:"pids_max" yaml:"pids_max"`
	// CPUQuota is how long the chat may run within each CPUPeriod, summed over all CPUs.
	CPUQuota Duration `json:"cpu_quota" yaml:"cpu_quota"`
	// CPUPeriod is the window of CPUQuota; the kernel takes 1 ms to 1 s.
	CPUPeriod Duration `json:"cpu_period" yaml:"cpu_period"`
	// ShmSize bounds /dev/shm in bytes.
	ShmSize       uint64 `json:"shm_size" yaml:"shm_size" unit:"bytes"`
	DiskLimits    `yaml:",inline"`
	ProcessLimits `yaml:",inline"`
	IOLimits      `yaml:",inline"`
}

// DiskLimits bound what a chat has on disk: its home, /tmp and /var/tmp together or, if these are
// on different file systems, what it has on each. A write beyond a quota gets EDQUOT. 0 is no
// bound.
type DiskLimits struct {
	// DiskMax is the most bytes of blocks.
	DiskMax uint64 `json:"disk_max,omitempty" yaml:"disk_max" unit:"bytes"`
	// InodesMax is the most files, directories and links.
	InodesMax uint64 `json:"inodes_max,omitempty" yaml:"inodes_max"`
}

// ProcessLimits are the resource limits of each process of a chat, soft and hard (getrlimit(2)).
// chatd-shim sets them unchanged.
type ProcessLimits struct {
	// NoFile is RLIMIT_NOFILE: descriptors of a process.
	NoFile uint64 `json:"nofile,omitempty" yaml:"nofile"`
	// FSize is RLIMIT_FSIZE: the largest file that a process may write, in bytes; 0 means no bound.
	// A write beyond it gets SIGXFSZ or EFBIG.
	FSize uint64 `json:"fsize,omitempty" yaml:"fsize" unit:"bytes"`
}

// IOLimits bound the block I/O of an awake chat, on each disk that its home, its temporary
// directories or /usr are on. 0 means no bound, except for the weight.
type IOLimits struct {
	// IOWeight is io.weight, the share of a busy disk; 100 is the kernel's default.
	IOWeight uint64 `json:"io_weight,omitempty" yaml:"io_weight"`
	// IOReadBPS, IOWriteBPS are rbps and wbps of io.max: bytes a second.
	IOReadBPS  uint64 `json:"io_read_bps,omitempty" yaml:"io_read_bps" unit:"bytes"`
	IOWriteBPS uint64 `json:"io_write_bps,omitempty" yaml:"io_write_bps" unit:"bytes"`
	// IOReadIOPS, IOWriteIOPS are riops and wiops of io.max: operations a second.
	IOReadIOPS  uint64 `json:"io_read_iops,omitempty" yaml:"io_read_iops"`
	IOWriteIOPS uint64 `json:"io_write_iops,omitempty" yaml:"io_write_iops"`
}

// BoundsIO reports whether a bound on block I/O is set.
func (l IOLimits) BoundsIO() bool { return l != IOLimits{IOWeight: l.IOWeight} }

// AsksIO reports whether a bound on block I/O or a weight other than the default is set.
func (l IOLimits) AsksIO() bool { return l != DefaultLimits().IOLimits }

// DefaultLimits are the seeds' figures. The period is the longest that the kernel accepts. A
// session reaches its prompt in 31 ms with 1 s, in 74 ms with the usual 100 ms.
func DefaultLimits() Limits {
	return Limits{
		MemoryMax:     256 << 20,
		PidsMax:       200,
		CPUQuota:      Duration(250 * time.Millisecond),
		CPUPeriod:     Duration(time.Second),
		ShmSize:       16 << 20,
		DiskLimits:    DiskLimits{DiskMax: 2 << 30, InodesMax: 200_000},
		ProcessLimits: ProcessLimits{NoFile: 1024},
		IOLimits:      IOLimits{IOWeight: 100},
	}
}

// Validate reports the limits that the kernel would refuse or that would
// leave no room for a session, as [ErrInvalid].
func (l Limits) Validate() error { return joinFaults("", l.Faults()) }

// Faults are the errors of the limits that are out of range, one for each.
func (l Limits) Faults() (all []Fault) {
	for _, c := range []struct {
		field string
		ok    bool
		want  string
	}{
		{"memory_max", l.MemoryMax >= 16<<20, "at least 16 MiB"},
		{"pids_max", l.PidsMax >= 16 && l.PidsMax <= 4<<20, "16 to 4194304"},
		{"cpu_period", l.CPUPeriod.D() >= time.Millisecond && l.CPUPeriod.D() <= time.Second, "1ms to 1s"},
		{"cpu_quota", l.CPUQuota.D() >= time.Millisecond, "at least 1ms"},
		{"nofile", l.NoFile >= 64 && l.NoFile <= 1<<20, "64 to 1048576"},
		{"fsize", l.FSize == 0 || l.FSize >= 1<<20, "0, which is no bound, or at least 1 MiB"},
		{"io_weight", l.IOWeight >= 1 && l.IOWeight <= 10_000, "1 to 10000"},
		{"io_read_bps", validBPS(l.IOReadBPS), "0, which is no bound, or at least 1 MiB"},
		{"io_write_bps", validBPS(l.IOWriteBPS), "0, which is no bound, or at least 1 MiB"},
		{"io_read_iops", validIOPS(l.IOReadIOPS), "0, which is no bound, or 100 to 4294967295"},
		{"io_write_iops", validIOPS(l.IOWriteIOPS), "0, which is no bound, or 100 to 4294967295"},
		{"disk_max", validBPS(l.DiskMax), "0, which is no bound, or at least 1 MiB"},
		{"inodes_max", validInodes(l.InodesMax), "0, which is no bound, or at least 64"},
		{"shm_size", l.ShmSize >= 1<<16, "at least 64 KiB"},
	} {
		if !c.ok {
			all = append(all, Fault{"limits." + c.field, Invalid("want %s", c.want)})
		}
	}
	return all
}

// validBPS and validIOPS refuse rates at which a session would take longer to load its programs
// than chatd waits.
func validBPS(n uint64) bool { return n == 0 || n >= 1<<20 }

// The kernel holds the number of operations in 32 bits.
func validIOPS(n uint64) bool { return n == 0 || n >= 100 && n <= math.MaxUint32 }

// validInodes refuses fewer than every home has.
func validInodes(n uint64) bool { return n == 0 || n >= 64 }

// Usage is what an awake chat uses now, and how often it reached a limit.
type Usage struct {
	MemoryBytes uint64 `json:"memory_bytes"`
	MemoryPeak  uint64 `json:"memory_peak"`
	Pids        uint64 `json:"pids"`
	// CPU is the CPU time used since the session began.
	CPU Duration `json:"cpu"`
	// OOMKills counts processes that the kernel killed for memory_max.
	OOMKills uint64 `json:"oom_kills"`
	// PidsRefused counts forks refused for pids_max.
	PidsRefused uint64 `json:"pids_refused"`
	// Throttled counts the CPU periods in which the chat ran out of quota.
	Throttled uint64 `json:"throttled"`
}

// DiskUsage is what a chat has on disk.
type DiskUsage struct {
	Bytes  uint64 `json:"bytes"`
	Inodes uint64 `json:"inodes"`
	// Percent is how much of disk_max or of inodes_max is used up, the larger of both; on several
	// file systems, of the fullest.
	Percent int `json:"percent"`
	// CountedAt is when it was counted, where the host has no quotas. With quotas it is absent: the
	// figures are those of now.
	CountedAt *time.Time `json:"counted_at,omitempty"`
}

// Duration is a time.Duration that reads and writes as Go's text, "60s".
type Duration time.Duration

// D is the plain time.Duration.
func (d Duration) D() time.Duration { return time.Duration(d) }

// String is [time.Duration.String].
func (d Duration) String() string { return time.Duration(d).String() }

// MarshalText writes Go's duration syntax.
func (d Duration) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText reads Go's duration syntax.
func (d *Duration) UnmarshalText(b []byte) error {
	v, err := time.ParseDuration(string(b))
	if err != nil {
		return Invalid("cannot use %s as a duration: want Go's form, as in 60s or 1h30m", Quote(string(b)))
	}
	*d = Duration(v)
	return nil
}

// ParseAge reads a time that has passed, or is to pass: Go's durations, with days and weeks in
// front of them, as in 30d, 2w or 1d12h. The error is [ErrInvalid].
func ParseAge(s string) (time.Duration, error) {
	var sum time.Duration
	rest := s
	for _, unit := range []struct {
		letter string
		length time.Duration
	}{{"w", 7 * 24 * time.Hour}, {"d", 24 * time.Hour}} {
		digits, after, ok := strings.Cut(rest, unit.letter)
		if !ok {
			continue
		}
		n, err := strconv.ParseUint(digits, 10, 16)
		if err != nil {
			return 0, notAge(s)
		}
		sum, rest = sum+time.Duration(n)*unit.length, after
	}
	if rest == "" && sum > 0 {
		return sum, nil
	}
	d, err := time.ParseDuration(rest)
	if err != nil || d < 0 {
		return 0, notAge(s)
	}
	return sum + d, nil
}

func notAge(s string) error {
	return Invalid("cannot use %s as a time: want 30d, 2w, 24h, 1d12h or 90m", Quote(s))
}

// CheckFreezeAfter reports an invalid freeze_after of a profile whose sleep_after is sleep.
func CheckFreezeAfter(freeze, sleep Duration) error {
	if err := CheckSleepAfter(freeze); err != nil {
		return err
	}
	if sleep != 0 && freeze >= sleep {
		return Invalid("%s: want less than sleep_after, which is %s", freeze, sleep)
	}
	return nil
}
