package chat

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
)

// Strict reads one JSON value into v. An unknown field is an error, because it may be a restriction
// that the reader cannot apply; so is any text after the value.
func Strict(text []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return err
	}
	if _, err := d.Token(); err != io.EOF {
		return errors.New("text after its end")
	}
	return nil
}
