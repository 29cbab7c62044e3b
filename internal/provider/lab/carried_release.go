//go:build release

package lab

import _ "embed"

// hack/release packs the lab's source and gives it to the compiler at this place, without writing it into the tree.
//
//go:embed source.tar.gz
var packedSource []byte

// carriedSource is the lab module, packed.
func carriedSource() []byte { return packedSource }
