package scale

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/slipway-k8s/slipway/platform"
)

// recordFile is the file in the state folder that says which groups are being scaled.
const recordFile = "scale.json"

// Record says that the scaling of a group was begun. It is removed when the group has its number of servers.
type Record struct {
	Group string    `json:"group"`
	Began time.Time `json:"began"`
	From  int       `json:"from"`
	To    int       `json:"to"`
	// Apply tells that apply began it: then the configuration says how many servers there are to be.
	Apply bool `json:"apply,omitempty"`
}

// Records reads those of a state folder, at most one for each group.
func Records(files platform.Files) (all []Record, err error) {
	data, err := files.Read(recordFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err == nil {
		err = json.Unmarshal(data, &all)
	}
	if err != nil {
		return nil, fmt.Errorf("read which groups of servers are being scaled, in %s: %w", files.Path(recordFile), err)
	}
	return all, nil
}

// Begin records that a change was agreed to, as a part of apply or not. One of the same group to another number that
// was cut off is replaced.
func Begin(files platform.Files, c Change, byApply bool) error {
	return rewrite(files, c.Group, func(was *Record) *Record {
		if was != nil && was.To == c.To {
			return was
		}
		return &Record{Group: c.Group, Began: time.Now().UTC(), From: c.From, To: c.To, Apply: byApply}
	})
}

// End removes the record of a group that has its number of servers.
func End(files platform.Files, group string) error {
	return rewrite(files, group, func(*Record) *Record { return nil })
}

// Forget removes the records of a cluster that is gone.
func Forget(files platform.Files) error { return files.Remove(recordFile) }

func rewrite(files platform.Files, group string, change func(was *Record) *Record) error {
	all, err := Records(files)
	if err != nil {
		return err
	}
	var kept []Record
	var was *Record
	for i := range all {
		if all[i].Group == group {
			was = &all[i]
			continue
		}
		kept = append(kept, all[i])
	}
	if is := change(was); is != nil {
		kept = append(kept, *is)
	}
	if len(kept) == 0 {
		return files.Remove(recordFile)
	}
	data, err := json.MarshalIndent(kept, "", "  ")
	if err != nil {
		return err
	}
	return files.Write(recordFile, append(data, '\n'))
}
