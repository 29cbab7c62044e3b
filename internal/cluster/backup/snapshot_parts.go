package backup

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
)

// An etcd snapshot is a database file, whose size is a multiple of this (bytes, a disk sector), and the SHA-256 of the
// file behind it: so etcd's server sends it, and etcdutl checks it.
const sectorSize = 512

// errSnapshot is wrapped by what a trailer says of a snapshot.
var errSnapshot = errors.New("the etcd snapshot is not whole")

// trailer checks, as an etcd snapshot streams through it, the hash at its end.
type trailer struct {
	sum  hash.Hash // of all that is certainly before the last 32 bytes
	tail []byte    // the last bytes so far, at most 32
	size int64
}

func newTrailer() *trailer { return &trailer{sum: sha256.New()} }

// Write never fails.
func (t *trailer) Write(p []byte) (int, error) {
	t.size += int64(len(p))
	if len(p) >= sha256.Size {
		t.sum.Write(t.tail)
		cut := len(p) - sha256.Size
		t.sum.Write(p[:cut])
		t.tail = append(t.tail[:0], p[cut:]...)
		return len(p), nil
	}
	t.tail = append(t.tail, p...)
	if surplus := len(t.tail) - sha256.Size; surplus > 0 {
		t.sum.Write(t.tail[:surplus])
		t.tail = append(t.tail[:0], t.tail[surplus:]...)
	}
	return len(p), nil
}

// check judges what came through.
func (t *trailer) check() error {
	switch {
	case t.size%sectorSize != sha256.Size:
		return fmt.Errorf("%w: its %d bytes do not end with a checksum, as a database file of whole sectors and 32 "+
			"bytes would", errSnapshot, t.size)
	case t.size <= sha256.Size:
		return fmt.Errorf("%w: it is empty", errSnapshot)
	case !bytes.Equal(t.sum.Sum(nil), t.tail):
		return fmt.Errorf("%w: its content does not match the checksum at its end", errSnapshot)
	}
	return nil
}
