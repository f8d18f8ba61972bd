package api

import (
	"reflect"

	"github.com/danielgtaylor/huma/v2"
)

// WithValues refuses a parameter without a value. Huma takes it for absent: a chat would be reaped
// and not archived, and a file replaced in place of appended to.
type WithValues struct{}

// Resolve is huma's.
func (WithValues) Resolve(ctx huma.Context) (wrong []error) {
	u := ctx.URL()
	for name, values := range u.Query() {
		if values[0] == "" {
			wrong = append(wrong, &huma.ErrorDetail{Location: "query." + name, Message: "want a value"})
		}
	}
	return wrong
}

// optional is a parameter whose zero value differs from none.
type optional[T any] struct {
	value T
	set   bool
}

// Schema is that of a parameter of type T.
func (optional[T]) Schema(r huma.Registry) *huma.Schema {
	return huma.SchemaFromType(r, reflect.TypeFor[T]())
}

// Receiver is where huma puts the value.
func (o *optional[T]) Receiver() reflect.Value { return reflect.ValueOf(&o.value).Elem() }

// OnParamSet is called by huma, whether there is a value or not.
func (o *optional[T]) OnParamSet(isSet bool, _ any) { o.set = isSet }
