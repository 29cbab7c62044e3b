package judge

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// labFolder is the lab's own folder in a state folder: not the command's.
const labFolder = "lab"

// readFiles reads every regular file of a state folder.
func readFiles(state string) (map[string]File, error) {
	files := map[string]File{}
	err := filepath.WalkDir(state, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(state, path)
		if err != nil {
			return err
		}
		if d.IsDir() && name == labFolder {
			return filepath.SkipDir
		}
		if !d.Type().IsRegular() {
			return nil
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		files[name] = File{Mode: uint32(info.Mode().Perm()), Data: data}
		return nil
	})
	return files, err
}

// Steps reads from the journal's file how far each step is; nil: there is none.
func Steps(p Place) (map[string]string, error) {
	data, err := os.ReadFile(filepath.Join(p.State, journalFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return journalStates(data)
}

// journalFile is the journal's name in a state folder.
const journalFile = "journal.json"

// journalStates reads how far each step is, by a reader of its own.
func journalStates(data []byte) (map[string]string, error) {
	var journal struct {
		Steps map[string]struct {
			State string `json:"state"`
		} `json:"steps"`
	}
	if err := json.Unmarshal(data, &journal); err != nil {
		return nil, fmt.Errorf("read %s: %w", journalFile, err)
	}
	states := map[string]string{}
	for step, record := range journal.Steps {
		states[step] = record.State
	}
	return states, nil
}
