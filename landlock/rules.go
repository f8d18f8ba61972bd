package landlock

// Rules list what stays allowed; everything else that the kernel's Landlock ABI can refuse is
// refused. Paths are absolute and are resolved once, when the rules are enforced. A rule belongs to
// the file or directory that was found, not to its name. A directory rule covers everything beneath
// it. A path that does not exist is left out and named in [Result].Missing.
//
// The zero Rules allow nothing.
type Rules struct {
	// List are directories that may be listed, as all that lies beneath; nothing else.
	List []string `json:"list,omitempty"`
	// Read are directories whose files may be read and listed, not executed.
	Read []string `json:"read,omitempty"`
	// Exec are directories whose files may be read, listed and executed.
	Exec []string `json:"exec,omitempty"`
	// Write are directories in which everything may be done that the file modes allow, also moving
	// files between any two of them and connecting to unix sockets. Only device nodes may not be
	// made.
	Write []string `json:"write,omitempty"`
	// ReadFiles and ExecFiles are single files, to read, and to read and execute.
	ReadFiles []string `json:"read_files,omitempty"`
	ExecFiles []string `json:"exec_files,omitempty"`
	// WriteFiles are single files to read, write and truncate.
	WriteFiles []string `json:"write_files,omitempty"`
	// Devices are device files to read, write and control by ioctl(2).
	Devices []string `json:"devices,omitempty"`
	// DeviceDirs are directories of such devices, as /dev/pts.
	DeviceDirs []string `json:"device_dirs,omitempty"`
}

// Result is what [Enforce] got from the kernel.
type Result struct {
	// ABI is the Landlock ABI that was used: the lower of the kernel's and this program's.
	ABI int `json:"abi"`
	// Rights are the operations that are refused where no rule allows them, by
	// the names of the kernel's LANDLOCK_ACCESS_FS_ constants in lower case.
	Rights []string `json:"rights"`
	// Refer: files may be moved and linked between directories (ABI 2). Without
	// it such a rename fails with EXDEV, and programs copy instead.
	Refer bool `json:"refer"`
	// Scoped: abstract unix sockets of processes outside are out of reach (ABI 6).
	Scoped bool `json:"scoped"`
	// Missing are the paths of the rules that do not exist.
	Missing []string `json:"missing,omitempty"`
}
