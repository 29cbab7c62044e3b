package redact

import (
	"encoding/base64"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"time"
)

// Watch learns secrets from files, again whenever those have changed. It can be used by many at once.
type Watch struct {
	hide    *Redactor
	whole   []string // files whose lines are secrets
	folders []string // with kubeconfigs and talosconfigs

	mu     sync.Mutex
	looked time.Time
	known  map[string]time.Time // path to when it was changed last
}

const (
	// watchedEvery is how often files are looked at, at most.
	watchedEvery = time.Second
	// largestFile is the largest file that is read.
	largestFile = 1 << 20
	// shortestSecret is the shortest line that is a secret.
	shortestSecret = 8
)

// NewWatch learns the secrets that are there already.
func NewWatch(hide *Redactor, whole, folders []string) *Watch {
	w := &Watch{hide: hide, whole: whole, folders: folders, known: map[string]time.Time{}}
	w.Learn()
	return w
}

// Learn learns what is new since the last time. What cannot be read is none of this process's secrets.
func (w *Watch) Learn() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if time.Since(w.looked) < watchedEvery {
		return
	}
	w.looked = time.Now()
	for _, path := range w.whole {
		if data, changed := w.read(path); changed {
			w.hide.Learn(lines(data)...)
		}
	}
	for _, folder := range w.folders {
		entries, _ := os.ReadDir(folder)
		for _, e := range entries {
			if !strings.Contains(e.Name(), "kubeconfig") && !strings.Contains(e.Name(), "talosconfig") {
				continue
			}
			if data, changed := w.read(filepath.Join(folder, e.Name())); changed {
				w.hide.Learn(values(data)...)
			}
		}
	}
}

// read reads a file where it has changed.
func (w *Watch) read(path string) (string, bool) {
	info, err := os.Stat(path)
	if err != nil || !info.Mode().IsRegular() || info.Size() > largestFile || w.known[path].Equal(info.ModTime()) {
		return "", false
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return "", false
	}
	w.known[path] = info.ModTime()
	return string(data), true
}

// lines are the lines of a file that has a secret, or several, without its comments: those of age-keygen name the
// public key.
func lines(data string) (all []string) {
	for line := range strings.Lines(data) {
		if line = strings.TrimSpace(line); len(line) >= shortestSecret && !strings.HasPrefix(line, "#") {
			all = append(all, line)
		}
	}
	return all
}

// value is a secret of a kubeconfig or a talosconfig.
var value = regexp.MustCompile(
	`(?m)^\s*-?\s*(?:client-key-data|key|token|password|id-token|refresh-token):\s*"?([^\s"]+)"?\s*$`)

// values are those secrets, as they are written and as they are meant.
func values(data string) (all []string) {
	for _, found := range value.FindAllStringSubmatch(data, -1) {
		all = append(all, found[1])
		key, err := base64.StdEncoding.DecodeString(found[1])
		if err != nil {
			continue
		}
		all = append(all, string(key))
		for _, line := range lines(string(key)) { // of a key in PEM, whose lines may be written in other ways
			if !strings.HasPrefix(line, "-----") {
				all = append(all, line)
			}
		}
	}
	return all
}
