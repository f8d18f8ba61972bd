//go:build !amd64

package roottest

var (
	x86Acts  map[string]act
	x86Cases []kernelCase
)
