package backup

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
)

// An etcd snapshot is a database file, whose size is a multiple of this (bytes, a disk sector), and the SHA-256 of the
// file behind it: so etcd's server sends it, and etcdutl checks it.
const sectorSize = 512

// errSnapshot is wrapped by what the hash at its end says of a snapshot.
var errSnapshot = errors.New("the etcd snapshot is not whole")

// snapshotParts sums up an etcd snapshot, part by part, and checks the hash at its end.
type snapshotParts struct {
	whole hash.Hash // of all
	sum   hash.Hash // of all that is certainly before the last 32 bytes
	tail  []byte    // the last bytes so far, at most 32
	n     int
	size  int64
}

func newSnapshotParts() *snapshotParts { return &snapshotParts{whole: sha256.New(), sum: sha256.New()} }

func (t *snapshotParts) add(p []byte) {
	t.n++
	t.size += int64(len(p))
	t.whole.Write(p)
	if len(p) >= sha256.Size {
		t.sum.Write(t.tail)
		cut := len(p) - sha256.Size
		t.sum.Write(p[:cut])
		t.tail = append(t.tail[:0], p[cut:]...)
		return
	}
	t.tail = append(t.tail, p...)
	if surplus := len(t.tail) - sha256.Size; surplus > 0 {
		t.sum.Write(t.tail[:surplus])
		t.tail = append(t.tail[:0], t.tail[surplus:]...)
	}
}

// together is what they make.
func (t *snapshotParts) together() Snapshot {
	return Snapshot{Size: t.size, SHA256: hex.EncodeToString(t.whole.Sum(nil)), Parts: t.n}
}

// check judges what came through.
func (t *snapshotParts) check() error {
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
