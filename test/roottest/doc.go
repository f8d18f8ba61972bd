// Package roottest holds the tests that need root: they provision real chats
// with real users, cgroups and packet rules, act as chat A, and try to get at
// chat B, the host and the world.
//
// The test binary runs itself again in a network and a mount namespace of its
// own, with an /etc/userdb and a /srv that end with it, so that nothing it does
// is seen by the machine, also when it fails. Cgroups have no such namespace;
// those are removed by name.
//
// Without root the tests are skipped, and say so; with CHATD_TEST_REQUIRE=all a
// skip is a failure.
//
// # What it does not stop
//
// Nothing; it shows what the other packages stop.
package roottest
