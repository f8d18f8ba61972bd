package chat

import (
	"errors"
	"strings"
	"testing"
)

func TestProfileNetwork(t *testing.T) {
	address, name := []string{"192.0.2.1:443"}, []string{"192.0.2.1:443", "*.example.com:443"}
	for _, x := range []struct {
		network Network
		egress  []string
		want    Network
		refused string // what the error says
	}{
		{"", nil, NetworkNone, ""}, {"", address, NetworkOwn, ""}, {"", name, NetworkOwn, ""},
		{NetworkNone, nil, NetworkNone, ""},
		{NetworkNone, address, NetworkNone, "nothing could reach"},
		{NetworkNone, name, NetworkNone, "nothing could reach"},
		{NetworkShared, nil, NetworkShared, "no longer there: want own"},
		{NetworkShared, address, NetworkShared, "no longer there: want own"},
		{NetworkOwn, nil, NetworkOwn, ""}, {NetworkOwn, address, NetworkOwn, ""},
		{NetworkOwn, name, NetworkOwn, ""},
		{"", []string{"127.0.0.0/8:80"}, NetworkOwn, "the chat's own"},
		{NetworkOwn, []string{"[::1]:80"}, NetworkOwn, "the chat's own"},
		{NetworkOwn, []string{"198.18.0.0/15:80"}, NetworkOwn, "a name's"},
		{NetworkOwn, []string{"198.19.1.1:80"}, NetworkOwn, "a name's"},
		{NetworkOwn, []string{"[fd63:6861:7464:1::/64]:80"}, NetworkOwn, "a name's"},
		{NetworkOwn, []string{"198.0.0.0/8:80", "198.20.0.0/16:80"}, NetworkOwn, ""},
		{"host", nil, "host", "want own or none"},
	} {
		p := Profile{Name: "p", Limits: DefaultLimits(), Network: x.network}
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
