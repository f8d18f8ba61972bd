package plan

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
)

// Strict reads one JSON value into v. An unknown field is an error, because it may be a wall that
// this program cannot apply; so is any text after the value.
func Strict(text []byte, v any) error {
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.DisallowUnknownFields()
	if err := dec.Decode(v); err != nil {
		return err
	}
	if _, err := dec.Token(); err != io.EOF {
		return errors.New("text after its end")
	}
	return nil
}
