// Package vagrant is the suite that only a real host can pass: Debian with
// systemd as PID 1, and chatd as deploy/ansible installs it. The scripts beside
// it make such a machine.
//
// Its tests have the build tag e2e and become one static program that runs inside
// the machine, as root, in phases. TestHost… looks at the running service: units,
// cgroups, PAM, /proc, packet rules, and what happens when others change these
// behind its back. TestBeforeReboot and TestAfterReboot stand on either side of a
// reboot, TestBeforeCut and TestAfterCut of a power cut, and TestUninstalled looks
// for anything that the uninstall playbook left.
//
// They ask chatd only what a caller may ask (the command line and client.Client) and
// look at everything else from outside: systemctl, the cgroup files, getent,
// sockets. Each has a control: what is refused to a chat works for an ordinary
// user or for root at the same moment.
//
//	CGO_ENABLED=0 go test -c -tags e2e -o e2e ./test/vagrant
//	./e2e -test.v -test.run '^TestHost'
//
// # What it does not stop
//
// The machine is for throwing away: the tests restart chatd, flush its rules, fill
// a disk, step the clock and add users. They put back what they changed; a test
// that is killed does not.
package vagrant
