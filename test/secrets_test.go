package test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func noSecrets(t *testing.T, c *command) {
	var info struct {
		Token string `json:"token"`
	}
	c.labGet("/v1/info", &info)
	if len(info.Token) < 20 {
		t.Fatalf("the lab's token has %d characters: it cannot be looked for", len(info.Token))
	}
	files, err := filesUnder(c.state, "lab")
	if err != nil {
		t.Fatal(err)
	}
	if len(files) < 4 {
		t.Fatalf("only %d files in the state folder", len(files))
	}
	logs, err := filesUnder(filepath.Join(c.state, "lab", "logs"))
	if err != nil {
		t.Fatal(err)
	}
	if len(c.args) < 20 {
		t.Fatalf("only %d argument lists were seen", len(c.args))
	}
	records, err := filepath.Glob(filepath.Join(c.state, "lab", "clusters", "*", "audit*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range append(records, filepath.Join(c.state, "lab", "hetzner-requests.jsonl"),
		filepath.Join(c.state, "lab", "lab.log")) {
		if logs[path], err = os.ReadFile(path); err != nil {
			t.Fatal(err)
		}
	}
	for _, secret := range []string{plantedToken, info.Token} {
		for path, data := range files {
			if bytes.Contains(data, []byte(secret)) {
				t.Errorf("a token is in %s", path)
			}
		}
		for path, data := range logs {
			if bytes.Contains(data, []byte(secret)) {
				t.Errorf("a token is in the lab's log %s", path)
			}
		}
		for list := range c.args {
			if strings.Contains(list, secret) {
				t.Error("a token was in a process's arguments")
			}
		}
	}
	for path := range files {
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s is open to others: %s", path, info.Mode())
		}
	}
}
