package test

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// labGet reads a path of the lab's control API.
func (c *command) labGet(path string, into any) {
	c.t.Helper()
	if err := c.labCall(http.MethodGet, path, into); err != nil {
		c.t.Fatal(err)
	}
}

// labCall sends a request to the lab's control API, and decodes the response; nil: discards it.
func (c *command) labCall(method, path string, into any) error {
	socket := filepath.Join(c.state, "lab", "lab.sock")
	if elsewhere, err := os.ReadFile(socket + ".path"); err == nil {
		socket = strings.TrimSpace(string(elsewhere))
	}
	client := http.Client{Timeout: time.Minute, Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "unix", socket)
		},
	}}
	request, err := http.NewRequest(method, "http://lab"+path, nil)
	if err != nil {
		return err
	}
	resp, err := client.Do(request)
	if err != nil {
		return fmt.Errorf("%s %s: ask the lab: %w", method, path, err)
	}
	defer resp.Body.Close()
	if resp.StatusCode/100 != 2 {
		return fmt.Errorf("%s %s: the lab answers %s", method, path, resp.Status)
	}
	if into == nil {
		return nil
	}
	if err := json.NewDecoder(resp.Body).Decode(into); err != nil {
		return fmt.Errorf("%s %s: read the lab's answer: %w", method, path, err)
	}
	return nil
}
