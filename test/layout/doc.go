// Package layout holds the tests of the repository as a whole: what may import what, how large things
// are, and what the pages say. ARCHITECTURE.md is the map; the code is in the folders.
//
// # What it does not stop
//
// See SECURITY.md, and the heading of this name in each package.
package layout
