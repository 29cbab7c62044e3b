package settings

import (
	"maps"
	"reflect"
	"slices"
	"testing"

	"github.com/slipway-k8s/slipway/config"
)

// Editors refuse keys that the schema does not have: it has those that the command reads.
func TestSchemaHasAllKeys(t *testing.T) {
	pools := poolsSchema(Field(workersField)).(object)["anyOf"].([]any)[1].(object)["items"].(object)
	addons := addonsSchema(Field(addonsField)).(object)["anyOf"].([]any)[1].(object)["items"].(object)["anyOf"].([]any)[1]
	for _, of := range []struct {
		schema object
		typ    reflect.Type
	}{{pools, reflect.TypeFor[config.WorkerPool]()}, {addons.(object), reflect.TypeFor[config.Addon]()}} {
		has, want := slices.Sorted(maps.Keys(of.schema["properties"].(object))), slices.Sorted(slices.Values(keysOf(of.typ)))
		if !slices.Equal(has, want) {
			t.Errorf("the schema of %s has %v, and the command reads %v", of.typ, has, want)
		}
	}
}
