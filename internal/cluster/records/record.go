// Package records reads and writes what a pivot and the recoveries remember of themselves in the state folder, and the
// copy of every object that a pivot moves.
package records

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/slipway-k8s/slipway/platform"
)

// read reads what an operation on a state folder remembers of itself; nil where there is none.
func read[T any](files platform.Files, name string) (*T, error) {
	data, err := files.Read(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	r := new(T)
	if err := json.Unmarshal(data, r); err != nil {
		return nil, fmt.Errorf("read %s: %w", files.Path(name), err)
	}
	return r, nil
}

func write(files platform.Files, name string, record any) error {
	data, err := json.MarshalIndent(record, "", "  ")
	if err != nil {
		return err
	}
	return files.Write(name, append(data, '\n'))
}

// setAside makes room for another operation whose records are in a folder: those of one
// that has ended are moved to a folder beside it, named after that time; of one that has not, they stay.
func setAside(files platform.Files, folder string, ended time.Time) error {
	if ended.IsZero() {
		return nil
	}
	return files.Move(folder, folder+"-"+ended.Format("20060102T150405Z"))
}

// ClusterFiles names the files and folders of the state folder that open a cluster or belong to its recovery. Where one
// of them exists, the state folder belongs to that cluster.
func ClusterFiles() []string {
	return []string{platform.ManagementKubeconfig, platform.Kubeconfig, platform.Talosconfig, RestoreFolder, QuorumFolder,
		ReadoptFolder, RotationFolder}
}
