package backup

import (
	"bytes"
	"cmp"
	"context"
	"crypto/md5"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/minio/minio-go/v7"

	"github.com/slipway-k8s/slipway/internal/client/objectstore"
)

const (
	// s3PartSize is how much of an upload is held in memory (bytes).
	s3PartSize = 16 << 20
	// s3MaxCopy is the largest object that S3 copies in one piece. No etcd comes near: its quota is 2 GB unless
	// configured, and 8 GB is the most that its authors advise.
	s3MaxCopy = 5 << 30
	// s3Stall is how long a store may leave the stream of a backup empty unless the options say otherwise.
	s3Stall = time.Minute
	// s3CleanWithin bounds the removal of what a failed upload left, which outlives the run's own context.
	s3CleanWithin = 30 * time.Second
)

// S3Options say how to reach an S3-compatible store.
type S3Options struct {
	objectstore.S3Options
	// Stall is how long the store may leave the stream of a backup empty; 0: a minute.
	Stall time.Duration
}

// S3 is a Store in a bucket, below a prefix. A backup is uploaded in parts under a temporary key, which has to succeed
// as a whole, read back, copied by the store itself to its own key, which S3 does in one piece, and removed from the
// temporary one.
type S3 struct {
	client *minio.Core
	bucket string
	prefix string // empty, or with a slash at its end
	stall  time.Duration
}

// IsS3 tells whether a place is written as s3://bucket/prefix.
func IsS3(place string) bool { return objectstore.IsS3(place) }

// NewS3 makes a Store of s3://bucket/prefix. It does not speak to it yet.
func NewS3(place string, o S3Options) (*S3, error) {
	bucket, err := objectstore.OpenBucket(place, o.S3Options)
	if err != nil {
		return nil, err
	}
	return &S3{client: bucket.Client, bucket: bucket.Name, prefix: bucket.Prefix, stall: cmp.Or(o.Stall, s3Stall)}, nil
}

// String is "s3://bucket/prefix".
func (s *S3) String() string {
	return strings.TrimSuffix(objectstore.S3Scheme+s.bucket+"/"+s.prefix, "/")
}

func (s *S3) place(name string) string {
	return objectstore.S3Scheme + s.bucket + "/" + s.prefix + name
}

// List implements Store.
func (s *S3) List(ctx context.Context) ([]Stored, error) {
	var all []Stored
	err := s.each(ctx, func(name string, size int64) error {
		if stored, ok := newStored(name, size); ok {
			all = append(all, stored)
		}
		return nil
	})
	slices.SortFunc(all, byAge)
	return all, err
}

// each goes through the objects right below the prefix.
func (s *S3) each(ctx context.Context, do func(name string, size int64) error) error {
	ctx, cancel := context.WithCancel(ctx) // ends the listing with the loop
	defer cancel()
	for o := range s.client.Client.ListObjects(ctx, s.bucket, minio.ListObjectsOptions{Prefix: s.prefix}) {
		if o.Err != nil {
			return fmt.Errorf("list the backups in %s: %w", s, objectstore.ExplainS3(o.Err))
		}
		if strings.HasSuffix(o.Key, "/") { // what is further below
			continue
		}
		if err := do(path.Base(o.Key), o.Size); err != nil {
			return err
		}
	}
	return nil
}

// Open implements Store. What it gives ends where the store says nothing more, and leaves the connection open.
func (s *S3) Open(ctx context.Context, name string) (io.ReadCloser, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	body, _, _, err := s.client.GetObject(ctx, s.bucket, s.prefix+name, minio.GetObjectOptions{})
	if err != nil {
		cancel(nil)
		err, status := fmt.Errorf("read %s: %w", s.place(name), objectstore.ExplainS3(err)),
			minio.ToErrorResponse(err).StatusCode
		// else it is the name, or the key, that is wrong
		if status < 400 || status >= 500 || status == http.StatusTooManyRequests {
			return nil, &UnreadError{err}
		}
		return nil, err
	}
	still := fmt.Errorf("read %s: the store stood still for %s in the middle of it: see whether it is well, and run again",
		s.place(name), s.stall)
	return &steadyStream{ReadCloser: body, ctx: ctx, cancel: cancel, stall: s.stall, still: still}, nil
}

// Remove implements Store.
func (s *S3) Remove(ctx context.Context, name string) error {
	if err := s.client.RemoveObject(ctx, s.bucket, s.prefix+name, minio.RemoveObjectOptions{}); err != nil {
		return fmt.Errorf("remove %s: %w", s.place(name), objectstore.ExplainS3(err))
	}
	return nil
}

// Begin implements Store. It removes drafts that killed runs left, whole ones and uploads.
func (s *S3) Begin(ctx context.Context, name string) (Draft, error) {
	if err := s.sweep(ctx, name); err != nil {
		return nil, err
	}
	d := &s3Draft{store: s, ctx: ctx, name: name, key: s.prefix + draftName(name)}
	var err error
	if d.upload, err = s.client.NewMultipartUpload(ctx, s.bucket, d.key,
		minio.PutObjectOptions{ContentType: "application/octet-stream"}); err != nil {
		return nil, fmt.Errorf("begin to upload %s: %w", s.place(name), objectstore.ExplainS3(err))
	}
	return d, nil
}

func (s *S3) sweep(ctx context.Context, name string) error {
	err := s.each(ctx, func(other string, _ int64) error {
		if abandoned(other, name, time.Now()) {
			return s.Remove(ctx, other)
		}
		return nil
	})
	if err != nil {
		return err
	}
	for u := range s.client.ListIncompleteUploads(ctx, s.bucket, s.prefix+draftPrefix, false) {
		if minio.ToErrorResponse(u.Err).Code == minio.NoSuchUpload {
			break // so some stores say that there are none
		}
		if u.Err != nil {
			return fmt.Errorf("list what dead runs left in %s: %w", s, objectstore.ExplainS3(u.Err))
		}
		if abandoned(path.Base(u.Key), name, time.Now()) {
			if err := s.client.AbortMultipartUpload(ctx, s.bucket, u.Key, u.UploadID); err != nil {
				return fmt.Errorf("remove the upload of %s that a dead run left: %w", u.Key, objectstore.ExplainS3(err))
			}
		}
	}
	return nil
}

// s3Draft is an upload in parts, then an object under a temporary key.
type s3Draft struct {
	store  *S3
	ctx    context.Context
	name   string
	key    string
	upload string // id; empty: it is complete, or was aborted
	whole  bool   // the object under key exists
	buffer bytes.Buffer
	parts  []minio.CompletePart
}

// Write uploads a part whenever one is full.
func (d *s3Draft) Write(p []byte) (int, error) {
	written := 0
	for len(p) > 0 {
		n := min(len(p), s3PartSize-d.buffer.Len())
		d.buffer.Write(p[:n])
		p = p[n:]
		if d.buffer.Len() == s3PartSize {
			if err := d.flush(); err != nil {
				return written, err
			}
		}
		written += n
	}
	return written, nil
}

// flush uploads the buffer. The SHA-256 is part of the request's signature, and every store compares the MD5; the
// chunks with signatures of their own, which the library would send without TLS, not every store understands.
func (d *s3Draft) flush() error {
	if len(d.parts)*s3PartSize+d.buffer.Len() > s3MaxCopy {
		return fmt.Errorf("upload %s: it is larger than the 5 GB that S3 copies in one piece: back up to a folder",
			d.store.place(d.name))
	}
	md, sha := md5.Sum(d.buffer.Bytes()), sha256.Sum256(d.buffer.Bytes())
	n := len(d.parts) + 1
	part, err := d.store.client.PutObjectPart(d.ctx, d.store.bucket, d.key, d.upload, n, bytes.NewReader(d.buffer.Bytes()),
		int64(d.buffer.Len()),
		minio.PutObjectPartOptions{
			Md5Base64: base64.StdEncoding.EncodeToString(md[:]), Sha256Hex: hex.EncodeToString(sha[:]),
			DisableContentSha256: true,
		})
	if err != nil {
		return fmt.Errorf("upload part %d of %s: %w", n, d.store.place(d.name), objectstore.ExplainS3(err))
	}
	d.parts = append(d.parts, minio.CompletePart{PartNumber: n, ETag: part.ETag})
	d.buffer.Reset()
	return nil
}

func (d *s3Draft) Finish() error {
	if d.buffer.Len() > 0 || len(d.parts) == 0 {
		if err := d.flush(); err != nil {
			return err
		}
	}
	_, err := d.store.client.CompleteMultipartUpload(d.ctx, d.store.bucket, d.key, d.upload, d.parts,
		minio.PutObjectOptions{})
	if err != nil {
		return fmt.Errorf("complete the upload of %s: %w", d.store.place(d.name), objectstore.ExplainS3(err))
	}
	d.upload, d.whole = "", true
	return nil
}

func (d *s3Draft) Open() (io.ReadCloser, error) { return d.store.Open(d.ctx, draftName(d.name)) }

// Publish lets the store copy, which it does as a whole or not at all.
func (d *s3Draft) Publish() error {
	s := d.store
	key := s.prefix + d.name
	_, err := s.client.StatObject(d.ctx, s.bucket, key, minio.StatObjectOptions{})
	if err == nil {
		return fmt.Errorf("%s is there already: another run began in the same second", s.place(d.name))
	}
	if minio.ToErrorResponse(err).Code != minio.NoSuchKey {
		return fmt.Errorf("look for %s: %w", s.place(d.name), objectstore.ExplainS3(err))
	}
	if _, err := s.client.CopyObject(d.ctx, s.bucket, d.key, s.bucket, key, nil, minio.CopySrcOptions{},
		minio.PutObjectOptions{}); err != nil {
		return fmt.Errorf("name the backup %s: %w", s.place(d.name), objectstore.ExplainS3(err))
	}
	return nil
}

// Discard aborts the upload, and removes the temporary object, also after Publish.
func (d *s3Draft) Discard() error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(d.ctx), s3CleanWithin)
	defer cancel()
	var errs []error
	if d.upload != "" {
		err := d.store.client.AbortMultipartUpload(ctx, d.store.bucket, d.key, d.upload)
		if err != nil && minio.ToErrorResponse(err).Code != minio.NoSuchUpload {
			errs = append(errs, fmt.Errorf("abort the upload of %s: %w", d.store.place(d.name), objectstore.ExplainS3(err)))
		}
	}
	if d.whole || d.upload != "" { // the answer to a completion may have been lost
		errs = append(errs, d.store.Remove(ctx, draftName(d.name)))
	}
	return errors.Join(errs...)
}
