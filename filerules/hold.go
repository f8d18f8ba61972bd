package filerules

import (
	"fmt"
	"math"
	"path"
	"slices"

	"github.com/chatd/chatd/chat"
)

// Class is what the kernel does with a path for every process of a session. It does not
// know a tool from a command.
type Class uint8

// The classes, from the laxest to the strictest.
const (
	Open     Class = iota // as its mode says
	ReadOnly              // EROFS for who would change it
	Closed                // EACCES or EPERM for who would read or change it
)

// String is the class in a word.
func (c Class) String() string { return [...]string{"open", "read-only", "closed"}[c] }

// refuses reports whether the kernel refuses op on a path of the class.
func (c Class) refuses(op Op) bool {
	return c == Closed || c == ReadOnly && op&(Write|Edit) != 0
}

// kernelPlaces hold no files that a rule could keep: what is there is the kernel's or
// chatd's own (shims.InsideDir, shims.InsideRun), and a session does not start without it.
var kernelPlaces = []string{"/proc", "/sys", "/dev", "/opt/chatd", "/run/chat"}

// KernelPlaces are those directories.
func KernelPlaces() []string { return slices.Clone(kernelPlaces) }

// sharedMemory is the one directory below a kernel place that holds files of the chat's.
const sharedMemory = "/dev/shm"

// Enforced reports whether the kernel can keep rules about what is at or below an absolute
// path: not in /proc, /sys, /dev and chatd's own directories, but in /dev/shm.
func Enforced(p string) bool {
	if chat.Within(p, sharedMemory) {
		return true
	}
	for _, place := range kernelPlaces {
		if chat.Within(p, place) {
			return false
		}
	}
	return true
}

// PathClass is the class of a path, and the verdict that made it so.
type PathClass struct {
	Class Class
	Why   Verdict
}

// Step is what holds for p, whose directory has parent: a path has the class of its
// directory until a rule is about it.
func (rs *Ruleset) Step(parent PathClass, p string) PathClass {
	h, _ := rs.step(parent, p)
	return h
}

// step is Step, and how many steps that took.
func (rs *Ruleset) step(parent PathClass, p string) (PathClass, int) {
	bash, steps := rs.checkName(p, Bash)
	switch {
	case bash.Denied():
		return PathClass{Closed, bash}, steps
	case parent.Class == Closed && bash.Rule == nil:
		return parent, steps
	case !rs.writes:
		return PathClass{}, steps
	}
	write, more := rs.checkName(p, Write)
	edit, most := rs.checkName(p, Edit)
	steps += more + most
	switch {
	case write.Denied():
		return PathClass{ReadOnly, write}, steps
	case edit.Denied():
		return PathClass{ReadOnly, edit}, steps
	case parent.Class == ReadOnly && (write.Rule == nil || edit.Rule == nil):
		return parent, steps
	}
	return PathClass{}, steps
}

// ClassOf is what the kernel holds for an absolute, folded name.
func (rs *Ruleset) ClassOf(name string) PathClass {
	h, _ := rs.classOf(name, math.MaxInt)
	return h
}

// classOf is Hold, and how many steps that took. After more than most it stops.
func (rs *Ruleset) classOf(name string, most int) (h PathClass, steps int) {
	h, steps = rs.step(PathClass{}, "/")
	for i := 1; i <= len(name) && name != "/" && steps <= most; i++ {
		if i == len(name) || name[i] == '/' {
			var more int
			h, more = rs.step(h, name[:i])
			steps += more
		}
	}
	return h, steps
}

// needs are the operations that have to be allowed for op: an edit reads.
func (op Op) needs() []Op {
	if op == Edit {
		return []Op{Read, Edit}
	}
	return []Op{op}
}

// Verdict says whether one operation can be done on a path in a session: whether the rules
// allow it, with all that it needs, and the kernel, which keeps the same rules for every
// program, does not refuse it. It is the answer of explain and of the file tools.
func (rs *Ruleset) Verdict(p string, op Op) (Verdict, error) {
	var v Verdict
	for _, need := range op.needs() {
		var err error
		if v, err = rs.Check(p, need); err != nil || v.Denied() {
			return v, err
		}
	}
	held, steps := rs.checkKernel(Absolute(rs.scope.Home, rs.scope.Cwd, p), op, MaxSteps)
	switch {
	case held.Denied():
		return held, nil
	case steps > MaxSteps:
		return Verdict{}, fmt.Errorf("cannot judge path %s: it has too many directories to compare with the rules: %w", chat.Quote(p), chat.ErrInvalid)
	}
	return v, nil
}

// pathMax is the longest path that the kernel takes.
const pathMax = 4096

// checkKernel is the denial by which the kernel refuses op on a path that is not folded, by
// either of its names; no denial if it does not. It also says how many steps that took.
// After more than most it stops.
func (rs *Ruleset) checkKernel(raw string, op Op, most int) (v Verdict, steps int) {
	names := []string{path.Clean(raw)}
	if rs.scope.Resolve != nil {
		if real := rs.scope.Resolve(raw); real != names[0] {
			names = append(names, real)
		}
	}
	for _, name := range names {
		if !rs.holds || !Enforced(name) || len(name) >= pathMax {
			continue
		}
		h, more := rs.classOf(name, most-steps)
		if steps += more; steps > most {
			break
		}
		if h.Class.refuses(op) {
			h.Why.ByKernel, h.Why.Name = true, name
			return h.Why, steps
		}
	}
	return Verdict{}, steps
}
