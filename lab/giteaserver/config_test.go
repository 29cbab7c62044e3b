package giteaserver

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The chart's configuration is Gitea's, but for what the lab decides; secrets are made once.
func TestConfiguration(t *testing.T) {
	dir := t.TempDir()
	config := filepath.Join(dir, "inlines")
	if err := os.MkdirAll(filepath.Join(config, "..data"), 0o700); err != nil { // as in a volume of a Secret
		t.Fatal(err)
	}
	for name, content := range map[string]string{
		"_generals_": "APP_NAME=Fleet # one\nRUN_USER=git", "service": "REQUIRE_SIGNIN_VIEW=true\n\nnonsense\n",
		"server":   "ROOT_URL=http://gitea/?a=b\nPROTOCOL=https\nHTTP_PORT=1",
		"database": "DB_TYPE=postgres\nHOST=elsewhere", "security": "SECRET_KEY=of the operator",
	} {
		if err := os.WriteFile(filepath.Join(config, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	values, err := readSections(config)
	if err != nil {
		t.Fatal(err)
	}
	s := server{static: "/static", data: filepath.Join(dir, "data")}
	if err := s.secrets(); err != nil {
		t.Fatal(err)
	}
	if err := s.write(s.configuration(values, listener{host: "0.0.0.0", port: "3000"})); err != nil {
		t.Fatal(err)
	}
	written, err := os.ReadFile(s.file())
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{"APP_NAME = `Fleet # one`", "REQUIRE_SIGNIN_VIEW = true", "ROOT_URL = http://gitea/?a=b",
		"PROTOCOL = http", "HTTP_ADDR = 0.0.0.0", "HTTP_PORT = 3000", "LOCAL_ROOT_URL = http://127.0.0.1:3000/",
		"DB_TYPE = sqlite3", "PATH = " + filepath.Join(s.data, "gitea.db"), "SECRET_KEY = of the operator",
		"INSTALL_LOCK = true", "STATIC_ROOT_PATH = /static", "INTERNAL_TOKEN_URI = file:" + s.secretFile("INTERNAL_TOKEN"),
	} {
		if !strings.Contains("\n"+string(written), "\n"+line+"\n") {
			t.Errorf("no line %q in\n%s", line, written)
		}
	}
	for _, word := range []string{"RUN_USER", "elsewhere", "SECRET_KEY_URI", "nonsense"} {
		if strings.Contains(string(written), word) {
			t.Errorf("%s is in\n%s", word, written)
		}
	}
	if section, key := strings.Index(string(written), "["), strings.Index(string(written), "APP_NAME"); key > section {
		t.Errorf("what belongs to no section does not come first:\n%s", written)
	}

	socket := s.configuration(values, listener{socket: "/tmp/s"})
	if socket["server"]["PROTOCOL"] != "http+unix" || socket["server"]["HTTP_ADDR"] != "/tmp/s" ||
		values["server"]["PROTOCOL"] != "https" {
		t.Errorf("on a socket: %v; the chart's: %v", socket["server"], values["server"])
	}

	first, err := os.ReadFile(s.secretFile("INTERNAL_TOKEN"))
	if err != nil || len(first) < 40 {
		t.Fatalf("%d characters, %v", len(first), err)
	}
	if err := s.secrets(); err != nil {
		t.Fatal(err)
	}
	if again, err := os.ReadFile(s.secretFile("INTERNAL_TOKEN")); err != nil || string(again) != string(first) {
		t.Error("a secret is made again")
	}
	for _, file := range []string{s.file(), s.secretFile("SECRET_KEY")} {
		if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", file, info.Mode(), err)
		}
	}
}

// A value is one line of the configuration, whatever is in it.
func TestQuoted(t *testing.T) {
	for value, want := range map[string]string{"plain": "plain", "a;b": "`a;b`", "a#b": "`a#b`", `a"b`: "`a\"b`", "": ""} {
		if got := quoted(value); got != want {
			t.Errorf("%q: %q, want %q", value, got, want)
		}
	}
}
