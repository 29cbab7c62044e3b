package crash

import (
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
)

// evidence is the folder in which a failed case's logs are kept: the next case overwrites those of the lab.
const evidence = "bad"

// notInFileNames are the characters of a case's name that a folder's name should not contain.
var notInFileNames = regexp.MustCompile(`[^A-Za-z0-9._#-]+`)

// keepLogs copies the logs, the events and the audit records below the state folder, for the diagnosis of a failed
// case. It returns the folder.
func (s *Suite) keepLogs(c Case) (string, error) {
	name := notInFileNames.ReplaceAllString(c.ID, "-")
	into := filepath.Join(s.Dir, evidence, name[:min(len(name), 150)])
	if err := os.RemoveAll(into); err != nil {
		return "", err
	}
	return into, filepath.WalkDir(s.State, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		logged := slices.Contains([]string{".log", ".jsonl"}, filepath.Ext(path)) || filepath.Base(path) == "log"
		if !entry.Type().IsRegular() || !logged {
			return nil
		}
		below, err := filepath.Rel(s.State, path)
		if err != nil {
			return err
		}
		return copyFile(path, filepath.Join(into, below))
	})
}

func copyFile(from, to string) error {
	if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
		return err
	}
	source, err := os.Open(from)
	if err != nil {
		return err
	}
	defer source.Close()
	return keep(to, func(f *os.File) error { _, err := io.Copy(f, source); return err })
}
