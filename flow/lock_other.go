//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd)

package flow

import (
	"errors"
	"os"
)

// tryLock refuses: without a lock that ends with its holder, two runs could
// not be kept apart.
func tryLock(*os.File) (bool, error) {
	return false, errors.ErrUnsupported
}
