// Package landlock confines a process to a list of paths by Landlock
// (landlock(7)), through github.com/landlock-lsm/go-landlock.
//
// A caller lists in [Rules] the paths to read, execute and write, and calls [Enforce], which cannot
// be undone. Enforcement is exact, not best effort. It refuses every operation that the kernel's
// ABI can refuse and this package knows, and an ABI below the required minimum is an error.
// [Result] has the result.
//
// A process of chatd's own that confines itself also calls [AllowCalls], with the few system calls
// that it goes on to make.
//
// A newer ABI can refuse more operations. Version 1 covers opening,
// making and removing; 2 lets files move between directories at all (without
// it every such rename fails with EXDEV); 3 adds truncation; 5 ioctl on
// devices; 6 abstract unix sockets; 9 connecting to a unix socket by its path.
// Debian 12 has 2, Ubuntu 24.04 has 4, Debian 13 has 6.
//
// # What it does not stop
//
// Landlock does not hide anything: stat(2), access(2), chdir(2) and readlink(2)
// work on every path, and so do chmod(2), chown(2), setxattr(2) and utime(2)
// where the file's owner allows them. A descriptor that was open before keeps
// its rights. Below ABI 3 a file that may not be written may still be
// truncated. Execution means execve(2): an interpreter runs a script it may
// only read, and ld.so a library. Network rules are left to package netpolicy, signals to the pid
// namespace. Two processes that enforced the same Rules separately are two
// domains: neither may trace the other, and with scope neither reaches the
// other's abstract sockets.
package landlock
