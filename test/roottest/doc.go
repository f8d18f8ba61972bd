// Package roottest holds the tests that need root: they provision real chats
// with real users, cgroups and packet rules, act as chat A, and try to get at
// chat B, the host and the world.
//
// The test binary runs itself again in a network and a mount namespace of its
// own, with an /etc/userdb and a /srv that end with it, so that nothing it does
// is seen by the machine, also when it fails. Cgroups have no such namespace;
// those are removed by name.
//
// With CHATD_TEST_BACKEND=systemd sessions are units of PID 1, in the host's
// namespaces, and so the tests act on the machine itself. They want one that is
// thrown away (/etc/chatd-disposable), with the PAM files of deploy/ansible and
// chatd stopped. They use the last uids of chatd's range, mount each daemon's state
// directory where pam_namespace looks for it, and in the end take away units,
// accounts and packet rules, also after a panic or a signal, and raise
// chatd-wall.service again if it was up. The few tests that make no sense there are
// named on stdout, with the reason.
//
// Without root the tests are skipped, and say so; with CHATD_TEST_REQUIRE=all a
// skip is a failure.
//
// # What it does not stop
//
// Nothing; it shows what the other packages stop.
package roottest
