package images

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// attempts is how often a blob is continued whose connection ended too early, before the pull fails.
const attempts = 3

func (s *Store) blobPath(h v1.Hash) string { return filepath.Join(s.Dir, "blobs", h.Algorithm, h.Hex) }

func hashOf(data []byte) v1.Hash {
	sum := sha256.Sum256(data)
	return v1.Hash{Algorithm: "sha256", Hex: hex.EncodeToString(sum[:])}
}

// readBlob reads a small blob and verifies it: a file of the cache may have been damaged since.
func (s *Store) readBlob(h v1.Hash) ([]byte, error) {
	path := s.blobPath(h)
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	if hashOf(data) != h {
		if err := os.Remove(path); err != nil {
			return nil, err
		}
		return nil, fmt.Errorf("%s did not have its digest and was removed: %w", path, os.ErrNotExist)
	}
	return data, nil
}

// writeBlob stores a blob that was verified.
func (s *Store) writeBlob(h v1.Hash, data []byte) error {
	if err := replace(s.blobPath(h), data); err != nil {
		return fmt.Errorf("store %s: %w", h, err)
	}
	return nil
}

// blob makes sure that the cache has a blob. One that another process is fetching is waited for; what an earlier pull
// left of it is continued. A blob has its name only when it is whole and has its digest.
func (p *pull) blob(ctx context.Context, d v1.Descriptor, bound int64) error {
	if d.Size > bound {
		return fmt.Errorf("it has %d bytes, and at most %d are fetched", d.Size, bound)
	}
	path := p.store.blobPath(d.Digest)
	return unlessThere(ctx, path, func() error {
		return p.eachEndpoint(ctx, func(c *client) error { return p.download(ctx, c, d, path) })
	})
}

// download fetches a blob into a partial file beside it, and renames it when it has its digest.
func (p *pull) download(ctx context.Context, c *client, d v1.Descriptor, path string) error {
	partial, err := os.OpenFile(path+".partial", os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return err
	}
	defer partial.Close()
	got := &received{file: partial, sum: sha256.New(), progress: p.progress, name: p.ref.Name()}
	if err := got.resume(d.Size); err != nil {
		return err
	}
	resumed := got.size > 0
	for attempt := 1; got.size < d.Size; attempt++ {
		before := got.size
		err := p.part(ctx, c, d, got)
		if err == nil && got.size < d.Size {
			err = io.ErrUnexpectedEOF
		}
		if err != nil && (attempt == attempts || ctx.Err() != nil || got.size == before) {
			if got.size > 0 {
				err = fmt.Errorf("%d of %d bytes were received, which are kept: the next attempt continues there: %w", got.size,
					d.Size, err)
			}
			return err
		}
	}
	if sum := hex.EncodeToString(got.sum.Sum(nil)); sum != d.Digest.Hex {
		if err := os.Remove(path + ".partial"); err != nil {
			return err
		}
		if resumed { // the part of the earlier pull may be the wrong one
			return p.download(ctx, c, d, path)
		}
		return refused(fmt.Errorf("what was received has the digest sha256:%s in place of %s: it is refused and was "+
			"removed", sum, d.Digest))
	}
	return os.Rename(path+".partial", path)
}

// part receives a blob from where the partial file ends.
func (p *pull) part(ctx context.Context, c *client, d v1.Descriptor, got *received) error {
	header := http.Header{}
	if got.size > 0 {
		header.Set("Range", fmt.Sprintf("bytes=%d-%d", got.size, d.Size-1))
	}
	reply, err := p.get(ctx, c, "/blobs/"+d.Digest.String(), header)
	if err != nil {
		return err
	}
	defer reply.Body.Close()
	switch {
	case reply.StatusCode == http.StatusPartialContent &&
		strings.HasPrefix(reply.Header.Get("Content-Range"), fmt.Sprintf("bytes %d-", got.size)):
	case reply.StatusCode == http.StatusOK, reply.StatusCode == http.StatusPartialContent,
		reply.StatusCode == http.StatusRequestedRangeNotSatisfiable && got.size > 0:
		// It does not continue, so that the whole is received.
		if err := got.restart(); err != nil {
			return err
		}
		if reply.StatusCode != http.StatusOK {
			return nil
		}
	default:
		return refusal(reply)
	}
	_, err = io.Copy(got, io.LimitReader(reply.Body, d.Size-got.size))
	return err
}

// received is what was received of a blob.
type received struct {
	file     *os.File
	sum      hash.Hash
	size     int64
	progress *Progress
	name     string
}

// resume continues what an earlier pull left, unless that is too long.
func (r *received) resume(size int64) (err error) {
	r.size, err = io.Copy(r.sum, r.file)
	if err != nil || r.size > size {
		return errors.Join(err, r.restart())
	}
	r.progress.add(int(r.size), r.name)
	return nil
}

func (r *received) restart() error {
	r.progress.add(-int(r.size), r.name)
	r.sum.Reset()
	r.size = 0
	if err := r.file.Truncate(0); err != nil {
		return err
	}
	_, err := r.file.Seek(0, io.SeekStart)
	return err
}

// Write stores the next part.
func (r *received) Write(data []byte) (int, error) {
	n, err := r.file.Write(data)
	r.sum.Write(data[:n])
	r.size += int64(n)
	r.progress.add(n, r.name)
	return n, err
}
