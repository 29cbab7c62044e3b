package upgrade

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"time"

	"github.com/slipway-k8s/slipway/platform"
)

const (
	folder     = "upgrade" // of an upgrade in the state folder: its record and its journal
	recordFile = "upgrade.json"
)

// Files is the folder of an upgrade in a state folder.
func Files(files platform.Files) platform.Files { return files.Folder(folder) }

// Record is the file that says that an upgrade is under way. It is removed with its folder when the upgrade has ended.
type Record struct {
	Began time.Time `json:"began"`
	From  Versions  `json:"from"`
	To    Versions  `json:"to"`
	// InPlace tells that it was agreed to upgrade Talos without replacing servers.
	InPlace bool `json:"inPlace,omitempty"`
}

// Same tells whether an upgrade is the one that was agreed to.
func (r *Record) Same(x Examination) bool {
	return r != nil && maps.Equal(r.To, x.To) && r.InPlace == x.InPlace
}

// ReadRecord reads it; nil where no upgrade is under way.
func ReadRecord(files platform.Files) (*Record, error) {
	data, err := Files(files).Read(recordFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	r := &Record{}
	if err == nil {
		err = json.Unmarshal(data, r)
	}
	if err != nil {
		return nil, fmt.Errorf("read the record of the upgrade in %s: %w", Files(files), err)
	}
	return r, nil
}

// Begin records that an upgrade was agreed to. Where one to other versions was under way, that one's journal is
// removed: what it has done is found in the cluster.
func Begin(files platform.Files, x Examination) error {
	r, err := ReadRecord(files)
	if err != nil {
		return err
	}
	if r != nil {
		if r.Same(x) {
			return nil
		}
		if err := End(files); err != nil {
			return err
		}
	}
	data, err := json.MarshalIndent(Record{Began: time.Now().UTC(), From: x.From, To: x.To, InPlace: x.InPlace}, "", "  ")
	if err != nil {
		return err
	}
	return Files(files).Write(recordFile, data)
}

// End removes the record and the journal of an upgrade.
func End(files platform.Files) error { return Files(files).RemoveFolder() }
