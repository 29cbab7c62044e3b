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
func Look(ctx context.Context, p Place) (World, error) {
	var info struct{ HetznerEndpoint, Token string }
	if err := p.ask(ctx, "/v1/info", &info); err != nil {
		return World{}, err
	}
	w, err := Records(p)
	if err != nil {
		return World{}, err
	}
	if w.Cloud, err = readCloud(ctx, info.HetznerEndpoint, info.Token); err != nil {
		return World{}, err
	}
	if w.Clusters, err = p.clusters(ctx); err != nil {
		return World{}, err
	}
	return w.copied()
}

// copied is the world as Read gives it back, so that one that was kept and one
// that was just seen are of the same types.
func (w World) copied() (World, error) {
	var kept bytes.Buffer
	if err := w.Keep(&kept); err != nil {
		return World{}, err
	}
	return Read(&kept)
}

// Keep writes a World as JSON. It contains secrets: the files of the state folder and the clusters' Secrets.
func (w World) Keep(out io.Writer) error { return json.NewEncoder(out).Encode(w) }

// Read reads a file that Keep wrote.
func Read(in io.Reader) (w World, err error) {
	decoder := json.NewDecoder(in)
	decoder.UseNumber()
	return w, decoder.Decode(&w)
}

// Records reads what can be read while the lab does not run, too: the logs and the files.
func Records(p Place) (w World, err error) {
	if w.Requests, err = readRequests(filepath.Join(p.Lab(), "hetzner-requests.jsonl")); err != nil {
		return w, err
	}
	if w.Writes, err = readWrites(p.Lab(), p.Cluster); err != nil {
		return w, err
	}
	if w.Files, err = readFiles(p.State); err != nil {
		return w, err
	}
	if journal, ok := w.Files[journalFile]; ok {
		w.Journal, err = journalStates(journal.Data)
	}
	return w, err
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
