package flow

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"
)

// holder is the lock file's content, which a second run reports.
type holder struct {
	PID   int       `json:"pid"`
	Host  string    `json:"host"`
	Since time.Time `json:"since"`
}

// LockFile takes the kernel's lock on a file, made if need be, and writes into
// it who holds it. It does not wait: where another holds the lock the error is a
// *LockedError. The lock ends with unlock or with the process. The file stays:
// removing it would let two holders hold two files of the same name.
func LockFile(ctx context.Context, path string) (unlock func() error, err error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	ok, err := tryLock(file)
	if err != nil {
		file.Close()
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	if !ok {
		defer file.Close()
		who := readHolder(ctx, path)
		return nil, &LockedError{PID: who.PID, Host: who.Host, Since: who.Since, Path: path}
	}
	if err := writeHolder(file); err != nil {
		file.Close()
		return nil, fmt.Errorf("write %s: %w", path, err)
	}
	return func() error {
		// The name goes first, or a run that comes between would be named by it.
		return errors.Join(file.Truncate(0), file.Close())
	}, nil
}

func writeHolder(file *os.File) error {
	host, err := os.Hostname()
	if err != nil {
		host = "an unknown host"
	}
	data, err := json.Marshal(holder{PID: os.Getpid(), Host: host, Since: time.Now().Round(time.Second)})
	if err != nil {
		return err
	}
	if err := file.Truncate(0); err != nil {
		return err
	}
	_, err = file.WriteAt(append(data, '\n'), 0)
	return err
}

// readHolder reads who holds the lock. The holder writes its name a moment
// after it has the lock, so an empty file is read again for a short while; the
// name is for the message only and may stay unknown.
func readHolder(ctx context.Context, path string) holder {
	ctx, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		var who holder
		data, err := os.ReadFile(path)
		if err == nil && json.Unmarshal(data, &who) == nil {
			return who
		}
		select {
		case <-ctx.Done():
			return holder{}
		case <-tick.C:
		}
	}
}
