package provision

import (
	"github.com/chatd/chatd/provision/safefs"
)

// installPrograms installs chatd-shim and the PATH of each profile into root's own directories.
// The directory that chatd itself was started from may be writable.
func (m *Manager) installPrograms() error {
	if err := safefs.InstallProgram(m.opt.Shim, m.paths.shim); err != nil {
		return err
	}
	if a := m.opt.Archives; a != nil {
		if err := safefs.InstallProgram(a.Program, m.paths.archive); err != nil {
			return err
		}
	}
	return m.programs.Link(m.opt.Profiles)
}

// freshPrograms updates the PATH of every profile for a wake or a run, if the host's programs
// changed. It sees a program that was installed after chatd's start. On failure the old PATH stays.
func (m *Manager) freshPrograms() {
	m.report("the commands in PATH", m.programs.Link(m.opt.Profiles))
}
