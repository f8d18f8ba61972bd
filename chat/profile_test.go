package chat

import (
	"errors"
	"net/netip"
	"strings"
	"testing"
)

func TestProfileNetwork(t *testing.T) {
	dns := []netip.Addr{netip.MustParseAddr("192.0.2.53")}
	address, name := []string{"192.0.2.1:443"}, []string{"192.0.2.1:443", "*.example.com:443"}
	for _, x := range []struct {
		network   Network
		egress    []string
		resolvers []netip.Addr
		want      Network
		refused   string // what the error says
	}{
		{"", nil, nil, NetworkNone, ""}, {"", address, nil, NetworkShared, ""},
		{"", name, nil, NetworkOwn, ""},
		{"", nil, dns, NetworkShared, ""}, {"", address, dns, NetworkShared, ""},
		{"", name, dns, NetworkOwn, "resolvers"},
		{NetworkNone, nil, nil, NetworkNone, ""},
		{NetworkNone, address, nil, NetworkNone, "nothing could reach"},
		{NetworkNone, name, nil, NetworkNone, "nothing could reach"},
		{NetworkNone, nil, dns, NetworkNone, "nothing could reach"},
		{NetworkShared, nil, nil, NetworkShared, ""},
		{NetworkShared, address, dns, NetworkShared, ""},
		{NetworkShared, name, nil, NetworkShared, "*.example.com:443"},
		{NetworkOwn, nil, nil, NetworkOwn, ""}, {NetworkOwn, address, nil, NetworkOwn, ""},
		{NetworkOwn, name, nil, NetworkOwn, ""},
		{NetworkOwn, address, dns, NetworkOwn, "resolvers"},
		{NetworkOwn, nil, dns, NetworkOwn, "resolvers"},
		{NetworkOwn, []string{"127.0.0.0/8:80"}, nil, NetworkOwn, "the chat's own"},
		{NetworkOwn, []string{"[::1]:80"}, nil, NetworkOwn, "the chat's own"},
		{NetworkOwn, []string{"198.18.0.0/15:80"}, nil, NetworkOwn, "a name's"},
		{NetworkOwn, []string{"198.19.1.1:80"}, nil, NetworkOwn, "a name's"},
		{NetworkOwn, []string{"[fd63:6861:7464:1::/64]:80"}, nil, NetworkOwn, "a name's"},
		{NetworkOwn, []string{"198.0.0.0/8:80", "198.20.0.0/16:80"}, nil, NetworkOwn, ""},
		{"host", nil, nil, "host", "want own, shared or none"},
	} {
		p := Profile{Name: "p", Limits: DefaultLimits(), Network: x.network, Resolvers: x.resolvers}
		p.Egress = allows(t, x.egress...)
		if got := p.EffectiveNetwork(); got != x.want {
			t.Errorf("%+v: network %s", x, got)
		}
		err := p.Validate()
		switch {
		case x.refused == "":
			if err != nil {
				t.Errorf("%+v: %v", x, err)
			}
		case !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), x.refused):
			t.Errorf("%+v: %v, want ErrInvalid with %q", x, err, x.refused)
		}
	}
}
