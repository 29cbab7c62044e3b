package test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// labCall asks the lab's control API to do something.
func (c *command) labCall(method, path string) error {
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
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode/100 != 2 {
		return fmt.Errorf("%s %s: the lab answers %s", method, path, resp.Status)
	}
	return nil
}
