package backupfile

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/slipway-k8s/slipway/internal/base/usage"
	"github.com/slipway-k8s/slipway/internal/client/etcd"
	"github.com/slipway-k8s/slipway/internal/cluster/backup"
)

// File is one backup in its store. It can be read several times.
type File struct {
	access Access
	name   string
	accept Accept
}

// File is the backup of a name: a path, or s3://bucket/prefix/name.
func (a Access) File(name string, accept Accept) File { return File{a, name, accept} }

// Read reads all of it and checks every digest; the etcd snapshot goes to a writer. It refuses a backup that is not
// accepted, with an error that wraps ErrUnencrypted, ErrUnauthenticated or ErrMisnamed.
func (f File) Read(ctx context.Context, snapshot io.Writer) (*backup.Contents, error) {
	dir, name := filepath.Dir(f.name), filepath.Base(f.name)
	if backup.IsS3(f.name) {
		name = path.Base(f.name)
		dir = strings.TrimSuffix(f.name, "/"+name)
	}
	store, err := f.access.Store(dir)
	if err != nil {
		return nil, err
	}
	identities, err := f.access.identities(ctx)
	if err != nil {
		return nil, err
	}
	body, err := store.Open(ctx, name)
	if err != nil {
		return nil, err
	}
	defer body.Close()
	archive, err := backup.Open(contextReader{ctx, body}, identities...)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", f.name, err)
	}
	if err := f.acceptFile(archive.Sealed(), len(identities) > 0); err != nil {
		return nil, err
	}
	if err := sameName(name, archive.Header()); err != nil {
		return nil, err
	}
	by, err := f.access.authenticators(archive.Header().Scope())
	if err != nil {
		return nil, err
	}
	contents, err := archive.Read(snapshot, by...)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", f.name, err)
	}
	return contents, f.acceptOrigin(contents)
}

// Verify reads it and restores its etcd in a scratch folder, so that a snapshot of another cluster, or one that etcd
// cannot read, is found before anything is changed.
func (f File) Verify(ctx context.Context) (contents *backup.Contents, is etcd.Content, err error) {
	scratch, remove, err := newScratch(ctx)
	if err != nil {
		return nil, is, &scratchError{err}
	}
	defer func() { err = errors.Join(err, remove()) }()
	file := filepath.Join(scratch, "snapshot.db")
	snapshot, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, is, err
	}
	contents, err = f.Read(ctx, scratchFile{snapshot})
	if err := errors.Join(err, snapshot.Close()); err != nil {
		return nil, is, err
	}
	is, err = etcd.Inspect(file, filepath.Join(scratch, "member"))
	if err == nil {
		err = sameEtcd(contents.Header, is)
	}
	if err != nil {
		return nil, is, fmt.Errorf("%s: %w", f.name, err)
	}
	return contents, is, nil
}

// Extract writes the etcd snapshot into a file. If that fails there is no file.
func (f File) Extract(ctx context.Context, path string) (*backup.Contents, error) {
	out, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return nil, &scratchError{fmt.Errorf("take the etcd snapshot out of the backup: %w", err)}
	}
	contents, err := f.Read(ctx, scratchFile{out})
	if err := errors.Join(err, out.Sync(), out.Close()); err != nil {
		return nil, errors.Join(err, os.Remove(path))
	}
	return contents, nil
}

// sameEtcd refuses an etcd that is not the one in the header of its backup.
func sameEtcd(h backup.Header, is etcd.Content) error {
	switch {
	case is.UID != h.UID:
		return fmt.Errorf("the etcd in it is of another cluster: its namespace kube-system has UID %q, the backup says %q",
			is.UID, h.UID)
	case is.Revision < h.Etcd.Revision:
		return fmt.Errorf("the etcd in it is older than the backup: revision %d, and it was at %d when the backup began",
			is.Revision, h.Etcd.Revision)
	}
	return nil
}

// Refusal is the error of a backup that was not read: a mistake of the operator if the file is wrong, else one of the
// machine or the store, after which the same command may succeed.
func Refusal(ctx context.Context, err error) error {
	_, unread := errors.AsType[*backup.UnreadError](err)
	_, machine := errors.AsType[*scratchError](err)
	machine = machine || errors.Is(err, syscall.ENOSPC) // as etcd's library says it
	switch {
	case context.Cause(ctx) != nil:
		return errors.Join(context.Cause(ctx), err)
	case unread:
		return fmt.Errorf("%w\nnothing was changed: run the same command again when the place where the backup lies answers",
			err)
	case machine:
		return fmt.Errorf("%w\nnothing was changed: it needs as much room as the backup's etcd has, three times over", err)
	}
	return &usage.Error{Err: err}
}

// scratchError means that this machine could not store what was read.
type scratchError struct{ error }

func (e *scratchError) Unwrap() error { return e.error }

// scratchFile is a file with write errors that can be distinguished from those of the backup.
type scratchFile struct{ *os.File }

func (f scratchFile) Write(p []byte) (int, error) {
	n, err := f.File.Write(p)
	if err != nil {
		err = &scratchError{err}
	}
	return n, err
}

// contextReader ends with its context, which a file does not know.
type contextReader struct {
	ctx context.Context
	io.Reader
}

func (r contextReader) Read(p []byte) (int, error) {
	if err := context.Cause(r.ctx); err != nil {
		return 0, err
	}
	return r.Reader.Read(p)
}
