package judge

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// longestLine bounds a line of a log: an audit line holds a Cluster object at most.
const longestLine = 4 << 20

// eachLine calls f with every whole line of a file. A last line without an end is one that is being written.
func eachLine(path string, f func([]byte) error) error {
	file, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer file.Close()
	scanner := bufio.NewScanner(file)
	scanner.Buffer(nil, longestLine)
	scanner.Split(wholeLines)
	for scanner.Scan() {
		if err := f(scanner.Bytes()); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
	}
	return scanner.Err()
}

func wholeLines(data []byte, atEOF bool) (advance int, token []byte, err error) {
	if end := slices.Index(data, '\n'); end >= 0 {
		return end + 1, data[:end], nil
	}
	if atEOF {
		return len(data), nil, nil
	}
	return 0, nil, nil
}

// readRequests reads the changing requests of the cloud's log.
func readRequests(path string) ([]Request, error) {
	var found []Request
	err := eachLine(path, func(line []byte) error {
		var r Request
		if err := json.Unmarshal(line, &r); err != nil {
			return err
		}
		if r.Write {
			found = append(found, r)
		}
		return nil
	})
	return found, err
}

// auditEvent is the part of an audit line that is read.
type auditEvent struct {
	Verb, RequestURI, UserAgent string
	StageTimestamp              time.Time
	ObjectRef                   struct{ Resource, APIGroup, Namespace, Name, Subresource string }
	ResponseStatus              struct{ Code int }
	ResponseObject              struct {
		Kind     string
		Metadata struct{ Name string }
		Spec     struct{ Paused bool }
	}
}

func (e auditEvent) write(side Side) Write {
	w := Write{
		Time: e.StageTimestamp, Side: side, Verb: e.Verb, Resource: e.ObjectRef.Resource,
		Subresource: e.ObjectRef.Subresource,
		Namespace:   e.ObjectRef.Namespace, Name: e.ObjectRef.Name, Agent: e.UserAgent, Code: e.ResponseStatus.Code,
		DryRun: strings.Contains(e.RequestURI, "dryRun="),
	}
	if e.ObjectRef.APIGroup != "" {
		w.Resource += "." + e.ObjectRef.APIGroup
	}
	if w.Resource == clusterResource && e.ResponseObject.Kind == "Cluster" {
		w.Paused, w.Name = &e.ResponseObject.Spec.Paused, cmp.Or(w.Name, e.ResponseObject.Metadata.Name)
	}
	return w
}

// readWrites reads the audit logs of all API servers of both clusters. cluster is the workload cluster's name.
func readWrites(lab, cluster string) ([]Write, error) {
	var found []Write
	for side, folder := range map[Side]string{Management: cluster + "-mgmt", Workload: cluster} {
		logs, err := filepath.Glob(filepath.Join(lab, "clusters", folder, "audit*.jsonl"))
		if err != nil {
			return nil, err
		}
		for _, log := range logs {
			err := eachLine(log, func(line []byte) error {
				var e auditEvent
				if err := json.Unmarshal(line, &e); err != nil {
					return err
				}
				found = append(found, e.write(side))
				return nil
			})
			if err != nil {
				return nil, err
			}
		}
	}
	slices.SortStableFunc(found, func(a, b Write) int { return a.Time.Compare(b.Time) })
	return found, nil
}
