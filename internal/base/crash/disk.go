package crash

import (
	"io/fs"

	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/base/effect"
)

// tearingDisk ends the process in the middle of a file.
type tearingDisk struct {
	flow.Disk
	faults *Faults
	torn   func()
}

// Create implements flow.Disk.
func (d tearingDisk) Create(path string, mode fs.FileMode) (flow.DiskFile, error) {
	file, err := d.Disk.Create(path, mode)
	if err != nil {
		return nil, err
	}
	return tearingFile{file, d}, nil
}

type tearingFile struct {
	flow.DiskFile
	disk tearingDisk
}

// Write implements io.Writer.
func (f tearingFile) Write(data []byte) (int, error) {
	if !f.disk.faults.tears() {
		return f.DiskFile.Write(data)
	}
	_, _ = f.DiskFile.Write(data[:len(data)/2]) // the process ends here, whether that succeeded or not
	f.disk.torn()
	return 0, nil
}

func (f *Faults) tears() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.armedFor(effect.PointTorn)
}
