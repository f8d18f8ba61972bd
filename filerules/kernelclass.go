package filerules

import (
	"slices"

	"github.com/chatd/chatd/chat"
)

// Class is the access that the kernel leaves every process of a session to a path. The kernel
// cannot tell tools from commands.
type Class uint8

// The classes, from the laxest to the strictest.
const (
	Open     Class = iota // as its mode says
	ReadOnly              // a change fails with EROFS
	Closed                // reads and changes fail with EACCES or EPERM
)

// String is the class in a word.
func (c Class) String() string { return [...]string{"open", "read-only", "closed"}[c] }

// refuses reports whether the kernel refuses op on a path of the class.
func (c Class) refuses(op Op) bool {
	return c == Closed || c == ReadOnly && op&(Write|Edit) != 0
}

// kernelPlaces hold no files that rules could protect: they belong to the kernel or to chatd
// (plan.InsideDir, plan.InsideRun), and a session does not start without them.
var kernelPlaces = []string{"/proc", "/sys", "/dev", "/opt/chatd", "/run/chat"}

// KernelPlaces are those directories.
func KernelPlaces() []string { return slices.Clone(kernelPlaces) }

// sharedMemory is the one directory below a kernel place that holds the chat's files.
const sharedMemory = "/dev/shm"

// Enforced reports whether the kernel can enforce rules at or below an absolute path: not in /proc,
// /sys, /dev (except /dev/shm) and chatd's own directories.
func Enforced(p string) bool {
	in := func(place string) bool { return chat.Within(p, place) }
	return in(sharedMemory) || !slices.ContainsFunc(kernelPlaces, in)
}

// PathClass is the class of a path, and the verdict behind it.
type PathClass struct {
	Class Class
	Why   Verdict
}

// Step is the class of p, whose directory has class parent: a path inherits its directory's class
// unless a rule is about it.
func (rs *Ruleset) Step(parent PathClass, p string) PathClass {
	bash := rs.CheckName(p, Bash)
	switch {
	case bash.Denied():
		return PathClass{Closed, bash}
	case parent.Class == Closed && bash.Rule == nil:
		return parent
	case !rs.writes:
		return PathClass{}
	}
	write, edit := rs.CheckName(p, Write), rs.CheckName(p, Edit)
	switch {
	case write.Denied():
		return PathClass{ReadOnly, write}
	case edit.Denied():
		return PathClass{ReadOnly, edit}
	case parent.Class == ReadOnly && (write.Rule == nil || edit.Rule == nil):
		return parent
	}
	return PathClass{}
}

// ClassOf is the class of an absolute, folded name.
func (rs *Ruleset) ClassOf(name string) PathClass {
	h := rs.Step(PathClass{}, "/")
	for i := 1; i <= len(name) && name != "/"; i++ {
		if i == len(name) || name[i] == '/' {
			h = rs.Step(h, name[:i])
		}
	}
	return h
}

// Verdict reports whether an operation on a path succeeds: for a file tool, whether the rules allow
// it; for a program ([Bash]), also whether the kernel, which enforces the rules for it, does not
// refuse it.
func (rs *Ruleset) Verdict(p string, op Op) (Verdict, error) {
	v, err := rs.Check(p, op)
	if err != nil || v.Denied() || op != Bash {
		return v, err
	}
	held, err := rs.CheckNamed([]chat.NamedPath{{Text: Absolute(rs.scope.Home, rs.scope.Cwd, p)}})
	if err != nil || held.Denied() {
		held.Paths = nil
		return held, err
	}
	return v, nil
}

// pathMax is the longest path that the kernel accepts.
const pathMax = 4096

// checkKernel returns the kernel's denial of op on a path by any of its names, if there is one.
func (rs *Ruleset) checkKernel(names []string, op Op) Verdict {
	for _, name := range names {
		if !rs.holds || !Enforced(name) || len(name) >= pathMax {
			continue
		}
		if h := rs.ClassOf(name); h.Class.refuses(op) {
			h.Why.ByKernel, h.Why.Name = true, name
			return h.Why
		}
	}
	return Verdict{}
}
