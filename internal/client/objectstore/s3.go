package objectstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"strings"

	"github.com/minio/minio-go/v7"
)

type s3Store struct {
	bucket Bucket
}

// S3 is a Store in a bucket. An object's version is its ETag, and a write is a conditional one (If-Match and
// If-None-Match): see CheckConditions.
func S3(bucket Bucket) Store { return checked{&s3Store{bucket}, mostBytes} }

func (s *s3Store) String() string { return s.bucket.String() }

func (s *s3Store) failed(do, name string, err error) error {
	place := S3Scheme + s.bucket.Name + "/" + s.bucket.Prefix + name
	answer := minio.ToErrorResponse(err)
	switch {
	case answer.Code == minio.NoSuchKey:
		return fmt.Errorf("%s %s: %w", do, place, fs.ErrNotExist)
	case answer.StatusCode == http.StatusPreconditionFailed || answer.StatusCode == http.StatusConflict:
		return fmt.Errorf("%s %s: %w", do, place, ErrConflict)
	}
	return fmt.Errorf("%s %s: %w", do, place, ExplainS3(err))
}

func (s *s3Store) Get(ctx context.Context, name string) ([]byte, string, error) {
	body, info, _, err := s.bucket.Client.GetObject(ctx, s.bucket.Name, s.bucket.Prefix+name, minio.GetObjectOptions{})
	if err != nil {
		return nil, None, s.failed("read", name, err)
	}
	defer body.Close()
	data, err := io.ReadAll(io.LimitReader(body, mostBytes+1))
	switch {
	case err != nil:
		return nil, None, s.failed("read", name, err)
	case len(data) > mostBytes:
		return nil, None, s.failed("read", name, fmt.Errorf("it is longer than %d bytes", mostBytes))
	case int64(len(data)) != info.Size:
		return nil, None, s.failed("read", name, fmt.Errorf("%d of %d bytes came", len(data), info.Size))
	}
	return data, info.ETag, nil
}

func (s *s3Store) Put(ctx context.Context, name string, data []byte, version string) (string, error) {
	o := minio.PutObjectOptions{ContentType: "application/json", DisableMultipart: true}
	if version == None {
		o.SetMatchETagExcept("*")
	} else {
		o.SetMatchETag(version)
	}
	info, err := s.bucket.Client.PutObject(ctx, s.bucket.Name, s.bucket.Prefix+name, bytes.NewReader(data),
		int64(len(data)), "", "", o)
	if minio.ToErrorResponse(err).Code == minio.NoSuchKey { // to be replaced, and gone
		err = fmt.Errorf("write %s: %w", name, ErrConflict)
	}
	if errors.Is(err, ErrConflict) {
		return None, err
	}
	if err != nil {
		return None, s.failed("write", name, err)
	}
	return info.ETag, nil
}

func (s *s3Store) List(ctx context.Context, prefix string) ([]string, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // ends the listing where it is left early
	var names []string
	for object := range s.bucket.Client.Client.ListObjects(ctx, s.bucket.Name, minio.ListObjectsOptions{
		Prefix: s.bucket.Prefix + prefix, Recursive: true}) {
		if object.Err != nil {
			return nil, s.failed("list", prefix, object.Err)
		}
		names = append(names, strings.TrimPrefix(object.Key, s.bucket.Prefix))
	}
	return names, nil
}

func (s *s3Store) Delete(ctx context.Context, name string) error {
	err := s.bucket.Client.RemoveObject(ctx, s.bucket.Name, s.bucket.Prefix+name, minio.RemoveObjectOptions{})
	if err != nil && minio.ToErrorResponse(err).Code != minio.NoSuchKey {
		return s.failed("delete", name, err)
	}
	return nil
}
