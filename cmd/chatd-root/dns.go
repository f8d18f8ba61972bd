package main

import (
	"errors"
	"fmt"
	"net/netip"
	"os"

	"github.com/chatd/chatd/internal/config"
)

// resolvConf is the host's, resolv.conf(5).
const resolvConf = "/etc/resolv.conf"

// dnsServers are those of the config or, if it names none, those of the host. A host without the
// file asks itself.
func dnsServers(cfg config.Config) ([]netip.AddrPort, error) {
	if len(cfg.DNSServers) > 0 {
		return cfg.DNSServers, nil
	}
	f, err := os.Open(resolvConf)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("cannot read the DNS servers: %w", err)
	}
	if err != nil {
		return []netip.AddrPort{netip.MustParseAddrPort("127.0.0.1:53")}, nil
	}
	defer f.Close()
	return config.ReadResolvConf(f), nil
}
