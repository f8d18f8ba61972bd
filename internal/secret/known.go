package secret

import (
	"encoding/json"
	"fmt"

	"github.com/chatd/chatd/chat"
)

// Known is a secret with its value, if its file could be read.
type Known struct {
	Name string
	Spec
	Value Value
}

// packed is a Known on its way from chatd-root to chatd-egress, with the value in clear.
type packed struct {
	Name   string       `json:"name"`
	Hosts  []chat.Allow `json:"hosts"`
	Header Header       `json:"header"`
	Value  string       `json:"value,omitempty"`
}

// Pack writes secrets with their values, for [Unpack]. Nothing that is logged or kept gets it.
func Pack(all []Known) ([]byte, error) {
	list := []packed{}
	for _, k := range all {
		list = append(list, packed{k.Name, k.Hosts, k.Header, k.Value.Reveal()})
	}
	b, err := json.Marshal(list)
	if err != nil {
		return nil, fmt.Errorf("cannot pack the secrets: %w", err)
	}
	return b, nil
}

// Unpack reads what Pack wrote; files and variables are not in it. The error does not tell what it
// read.
func Unpack(b []byte) ([]Known, error) {
	var list []packed
	if chat.Strict(b, &list) != nil {
		return nil, chat.Invalid("cannot read the secrets")
	}
	var all []Known
	for _, p := range list {
		k := Known{Name: p.Name, Spec: Spec{Hosts: p.Hosts, Header: p.Header}}
		if p.Value != "" {
			var err error
			if k.Value, err = ParseValue([]byte(p.Value)); err != nil {
				return nil, fmt.Errorf("cannot use the value of secret %s: %w", chat.Quote(p.Name),
					err)
			}
		}
		all = append(all, k)
	}
	return all, nil
}
