package judge

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
)

// Place is where a bootstrap in the lab has its files.
type Place struct {
	State   string // the command's state folder; the lab of it is up
	Cluster string // the cluster's name
}

// Lab is the folder of the lab.
func (p Place) Lab() string { return filepath.Join(p.State, labFolder) }

// Look reads the whole state. It changes nothing.
func Look(ctx context.Context, p Place) (Observation, error) {
	var info struct{ HetznerEndpoint, Token string }
	if err := p.ask(ctx, "/v1/info", &info); err != nil {
		return Observation{}, err
	}
	w, err := Records(p)
	if err != nil {
		return Observation{}, err
	}
	if w.Cloud, err = readCloud(ctx, info.HetznerEndpoint, info.Token); err != nil {
		return Observation{}, err
	}
	if w.Clusters, err = p.clusters(ctx); err != nil {
		return Observation{}, err
	}
	return w.copied()
}

// copied is the observation as Read returns it, so that a saved one and a new one have the same types.
func (seen Observation) copied() (Observation, error) {
	var kept bytes.Buffer
	if err := seen.Keep(&kept); err != nil {
		return Observation{}, err
	}
	return Read(&kept)
}

// Keep writes a Observation as JSON. It contains secrets: the files of the state folder and the clusters' Secrets.
func (seen Observation) Keep(out io.Writer) error { return json.NewEncoder(out).Encode(seen) }

// Read reads a file that Keep wrote.
func Read(in io.Reader) (seen Observation, err error) {
	decoder := json.NewDecoder(in)
	decoder.UseNumber()
	return seen, decoder.Decode(&seen)
}

// Records reads what can be read while the lab does not run, too: the logs and the files.
func Records(p Place) (seen Observation, err error) {
	if seen.Requests, err = readRequests(filepath.Join(p.Lab(), "hetzner-requests.jsonl")); err != nil {
		return seen, err
	}
	if seen.Writes, err = readWrites(p.Lab(), p.Cluster); err != nil {
		return seen, err
	}
	if seen.Files, err = readFiles(p.State); err != nil {
		return seen, err
	}
	if journal, ok := seen.Files[journalFile]; ok {
		seen.Journal, err = journalStates(journal.Data)
	}
	return seen, err
}

// clusters reads the clusters that the lab lists, each with the kubeconfig that an operator would use.
func (p Place) clusters(ctx context.Context) (map[Side]Cluster, error) {
	var status struct {
		Clusters []struct {
			Name, Kind string
			Ready      bool
		}
	}
	if err := p.ask(ctx, "/v1/status", &status); err != nil {
		return nil, err
	}
	found := map[Side]Cluster{}
	for _, k := range status.Clusters {
		side, file := Workload, "kubeconfig"
		if k.Kind == "management" {
			side, file = Management, "management.kubeconfig"
		}
		kubeconfig, err := os.ReadFile(filepath.Join(p.State, file))
		if os.IsNotExist(err) || !k.Ready && side == Workload {
			continue // it cannot be used yet
		}
		if err != nil {
			return nil, err
		}
		c, err := readCluster(ctx, kubeconfig, p.Cluster)
		if err != nil {
			return nil, fmt.Errorf("read cluster %s: %w", k.Name, err)
		}
		found[side] = c
	}
	return found, nil
}

// ask reads a path of the lab's control API.
func (p Place) ask(ctx context.Context, path string, into any) error {
	socket := filepath.Join(p.Lab(), "lab.sock")
	if elsewhere, err := os.ReadFile(socket + ".path"); err == nil {
		socket = strings.TrimSpace(string(elsewhere))
	}
	client := http.Client{Timeout: answerWithin, Transport: &http.Transport{DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "unix", socket)
		},
	}}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://lab"+path, nil)
	if err != nil {
		return err
	}
	reply, err := client.Do(request)
	if err != nil {
		return fmt.Errorf("ask the lab for %s: %w", path, err)
	}
	defer reply.Body.Close()
	data, err := io.ReadAll(reply.Body)
	if err != nil || reply.StatusCode != http.StatusOK {
		return fmt.Errorf("ask the lab for %s: %s, %v", path, reply.Status, err)
	}
	return json.Unmarshal(data, into)
}
