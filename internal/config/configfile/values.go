package configfile

import (
	"encoding"
	"encoding/json"
	"net/netip"
	"reflect"
	"strconv"
	"strings"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/config"
)

// setText sets v, whose type a config has, to what the text says.
func setText(v reflect.Value, text string) (err error) {
	switch to := v.Addr().Interface().(type) {
	case *bool:
		if *to = text == "true"; !*to && text != "false" {
			err = config.Wrong(text, "true or false")
		}
	case *int:
		if *to, err = strconv.Atoi(text); err != nil {
			err = config.Wrong(text, "a number")
		}
	case *uint64:
		*to, err = ParseSize(text)
	case *chat.Duration:
		d, wrong := chat.ParseAge(text)
		*to, err = chat.Duration(d), wrong
	case *netip.AddrPort:
		*to, err = parseServer(text)
	case *chat.Pattern:
		to.Text = text
		_, err = to.Compile()
	case encoding.TextUnmarshaler:
		err = to.UnmarshalText([]byte(text))
	default:
		v.SetString(text)
	}
	return err
}

// parseServer reads ADDRESS, ADDRESS:PORT or [ADDRESS]:PORT. What addresses a server may have is
// package config's.
func parseServer(text string) (netip.AddrPort, error) {
	if addr, err := netip.ParseAddr(text); err == nil {
		return netip.AddrPortFrom(addr, dnsPort), nil
	}
	server, err := netip.ParseAddrPort(text)
	if err != nil {
		return netip.AddrPort{}, config.Wrong(text, config.WantServer)
	}
	return server, nil
}

// LimitValue reads the value of a key of limits as the config has it, and returns it as the API
// has.
func LimitValue(key, text string) (json.RawMessage, error) {
	f, ok := fieldOf(reflect.TypeFor[chat.Limits](), key)
	if !ok {
		return nil, unknownKey(key)
	}
	v := reflect.New(f.Type).Elem()
	if err := setText(v, text); err != nil {
		return nil, err
	}
	return json.Marshal(v.Interface())
}

// ParseSize reads a number, with KiB, MiB, GiB or TiB after it or without.
func ParseSize(s string) (uint64, error) {
	digits, shift := s, 0
	for i, unit := range []string{"KiB", "MiB", "GiB", "TiB"} {
		if rest, ok := strings.CutSuffix(s, unit); ok {
			digits, shift = strings.TrimRight(rest, " "), 10*(i+1)
		}
	}
	n, err := strconv.ParseUint(digits, 10, 64)
	if err != nil || n > 1<<62>>shift {
		return 0, config.Wrong(s, "a number, or one with KiB, MiB, GiB or TiB")
	}
	return n << shift, nil
}

// dnsPort is the port of a server that names none.
const dnsPort = 53

func unknownKey(key string) error {
	return chat.Invalid("unknown key %s: want a key of chatd serve --check", chat.Quote(key))
}
