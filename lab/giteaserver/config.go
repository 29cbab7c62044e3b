package giteaserver

import (
	"bytes"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// configuration is Gitea's configuration: values by section and key. The section without a name comes first.
type configuration map[string]map[string]string

// generals is the file of the chart's Secret that has the section without a name.
const generals = "_generals_"

// readSections reads the Secret that the chart makes of its value gitea.config: a file for each section, with lines
// KEY=VALUE. An empty dir is none.
func readSections(dir string) (configuration, error) {
	all := configuration{}
	if dir == "" {
		return all, nil
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("read the chart's configuration: %w", err)
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), ".") { // of the volume
			continue
		}
		data, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			return nil, fmt.Errorf("read the chart's configuration: %w", err)
		}
		section := strings.TrimPrefix(e.Name(), generals)
		for line := range strings.Lines(string(data)) {
			if key, value, ok := strings.Cut(strings.TrimSpace(line), "="); ok {
				all.set(section, strings.TrimSpace(key), strings.TrimSpace(value))
			}
		}
	}
	return all, nil
}

func (c configuration) set(section, key, value string) {
	if c[section] == nil {
		c[section] = map[string]string{}
	}
	c[section][key] = value
}

// listener is where Gitea serves: on a Unix socket, or at a port.
type listener struct{ socket, host, port string }

// configuration returns the chart's configuration with what the lab decides: the folders, the database, which is
// SQLite, the addresses, and the secrets. There is no SSH, and nothing outside the lab is asked.
func (s server) configuration(values configuration, at listener) configuration {
	c := configuration{}
	for section, keys := range values {
		c[section] = maps.Clone(keys)
	}
	delete(c[""], "RUN_USER") // the lab's user
	c.set("", "WORK_PATH", s.data)
	if os.Geteuid() == 0 { // in the lab's user namespace, or in a container
		c.set("", "I_AM_BEING_UNSAFE_RUNNING_AS_ROOT", "true")
	}
	delete(c["server"], "APP_DATA_PATH")
	c.set("server", "STATIC_ROOT_PATH", s.static)
	c.set("server", "OFFLINE_MODE", "true")
	c.set("server", "DISABLE_SSH", "true")
	if at.socket != "" {
		c.set("server", "PROTOCOL", "http+unix")
		c.set("server", "HTTP_ADDR", at.socket)
		c.set("server", "UNIX_SOCKET_PERMISSION", "600")
		delete(c["server"], "LOCAL_ROOT_URL")
	} else {
		c.set("server", "PROTOCOL", "http")
		c.set("server", "HTTP_ADDR", at.host)
		c.set("server", "HTTP_PORT", at.port)
		c.set("server", "LOCAL_ROOT_URL", "http://127.0.0.1:"+at.port+"/")
	}
	c["database"] = map[string]string{"DB_TYPE": "sqlite3", "PATH": filepath.Join(s.data, "gitea.db")}
	c.set("security", "INSTALL_LOCK", "true")
	c.set("cron.update_checker", "ENABLED", "false")
	for _, secret := range secrets {
		if c[secret.section][secret.key] == "" {
			c.set(secret.section, secret.key+"_URI", "file:"+s.secretFile(secret.key))
		}
	}
	return c
}

// secrets are those that Gitea would make itself and write into its configuration.
var secrets = []struct{ section, key string }{
	{"security", "SECRET_KEY"}, {"security", "INTERNAL_TOKEN"}, {"oauth2", "JWT_SECRET"}, {"server", "LFS_JWT_SECRET"},
}

func (s server) secretFile(key string) string {
	return filepath.Join(s.data, "secrets", strings.ToLower(key))
}

// secrets makes them once.
func (s server) secrets() error {
	for _, secret := range secrets {
		file := s.secretFile(secret.key)
		if _, err := os.Stat(file); !errors.Is(err, fs.ErrNotExist) {
			if err != nil {
				return err
			}
			continue
		}
		random := make([]byte, 32)
		_, _ = rand.Read(random) // it never fails
		if err := replace(file, []byte(base64.RawURLEncoding.EncodeToString(random))); err != nil {
			return err
		}
	}
	return nil
}

// write writes Gitea's configuration.
func (s server) write(c configuration) error { return replace(s.file(), c.text()) }

// text is the configuration as Gitea reads it.
func (c configuration) text() []byte {
	var b bytes.Buffer
	for _, section := range slices.Sorted(maps.Keys(c)) {
		if section != "" {
			fmt.Fprintf(&b, "\n[%s]\n", section)
		}
		for _, key := range slices.Sorted(maps.Keys(c[section])) {
			fmt.Fprintf(&b, "%s = %s\n", key, quoted(c[section][key]))
		}
	}
	return b.Bytes()
}

// quoted is a value that may have characters that begin a comment.
func quoted(value string) string {
	if strings.ContainsAny(value, "#;\"\\") && !strings.Contains(value, "`") {
		return "`" + value + "`"
	}
	return value
}

// replace writes a file that only this user reads, whole or not at all.
func replace(file string, data []byte) error {
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return err
	}
	if err := os.WriteFile(file+".new", data, 0o600); err != nil {
		return err
	}
	return os.Rename(file+".new", file)
}
