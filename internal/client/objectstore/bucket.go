package objectstore

import (
	"fmt"
	"net/url"
	"strings"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
)

// S3Scheme begins a place in an S3 store.
const S3Scheme = "s3://"

// attempts is how often a request is made that fails for a reason that may pass; the waits between are below a second
// each.
const attempts = 5

// S3Options say how to reach an S3-compatible store.
type S3Options struct {
	Endpoint string // "https://nbg1.your-objectstorage.com", or without a scheme for https
	Region   string // empty: the store is asked, or does not care
	// AccessKey and SecretKey sign the requests. Session is for temporary ones.
	AccessKey, SecretKey, Session string
}

// Bucket is a bucket with the prefix that all names in it begin with.
type Bucket struct {
	Client *minio.Core
	Name   string
	Prefix string // empty, or with a slash at its end
}

// IsS3 tells whether a place is written as s3://bucket/prefix.
func IsS3(place string) bool { return strings.HasPrefix(place, S3Scheme) }

// OpenBucket makes a client of s3://bucket/prefix. It does not speak to the store yet.
func OpenBucket(place string, o S3Options) (Bucket, error) {
	bucket, prefix, _ := strings.Cut(strings.TrimPrefix(place, S3Scheme), "/")
	if bucket == "" {
		return Bucket{}, fmt.Errorf("%q names no bucket: write s3://bucket or s3://bucket/prefix", place)
	}
	if prefix = strings.Trim(prefix, "/"); prefix != "" {
		prefix += "/"
	}
	host, secure, err := endpoint(o.Endpoint)
	if err != nil {
		return Bucket{}, err
	}
	client, err := minio.NewCore(host, &minio.Options{
		Creds:  credentials.NewStaticV4(o.AccessKey, o.SecretKey, o.Session),
		Secure: secure, Region: o.Region, MaxRetries: attempts,
	})
	if err != nil {
		return Bucket{}, fmt.Errorf("make a client for the store at %s: %w", host, err)
	}
	return Bucket{Client: client, Name: bucket, Prefix: prefix}, nil
}

// String is "s3://bucket/prefix".
func (b Bucket) String() string { return strings.TrimSuffix(S3Scheme+b.Name+"/"+b.Prefix, "/") }

func endpoint(text string) (host string, secure bool, err error) {
	if !strings.Contains(text, "://") {
		text = "https://" + text
	}
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" || strings.Trim(u.Path, "/") != "" {
		return "", false, fmt.Errorf("%q is no address of an S3 store: write it as https://nbg1.your-objectstorage.com, "+
			"without the bucket", text)
	}
	return u.Host, u.Scheme == "https", nil
}

// ExplainS3 adds what S3's own message leaves out.
func ExplainS3(err error) error {
	switch minio.ToErrorResponse(err).Code {
	case minio.NoSuchBucket:
		return fmt.Errorf("%w (make the bucket first: Slipway makes none)", err)
	case "InvalidAccessKeyId", "SignatureDoesNotMatch", minio.AccessDenied:
		return fmt.Errorf("%w (the keys are AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY in the environment; they need to "+
			"read, write, list and delete)", err)
	}
	return err
}
