package giteaserver

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// The test binary is Gitea for the tests below: its commands keep the user in a file beside the configuration.
const playVariable = "GITEASERVER_TEST_PLAY"

func TestMain(m *testing.M) {
	if os.Getenv(playVariable) != "" {
		if err := play(os.Args[1:]); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// known is the user as Gitea's commands and its API see it.
type known struct{ User, Password, Token string }

func play(args []string) error {
	line := strings.Join(args, " ")
	file := filepath.Join(filepath.Dir(args[len(args)-1]), "user.json")
	read := func() (k known) {
		data, _ := os.ReadFile(file)
		_ = json.Unmarshal(data, &k)
		return k
	}
	write := func(k known) error {
		data, _ := json.Marshal(k)
		return os.WriteFile(file, data, 0o600)
	}
	k := read()
	if log, err := os.OpenFile(file+".log", os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600); err == nil {
		fmt.Fprintln(log, line)
		log.Close()
	}
	switch {
	case strings.HasPrefix(line, "admin user create"):
		if k.User != "" {
			return fmt.Errorf("user already exists")
		}
		return write(known{User: args[4], Password: "a random one"})
	case strings.HasPrefix(line, "admin user generate-access-token"):
		if k.User == "" {
			return fmt.Errorf("user does not exist")
		}
		k.Token = "the token"
		fmt.Println("a line of the log")
		fmt.Println(k.Token)
		return write(k)
	case !strings.HasPrefix(line, "web"):
		return fmt.Errorf("unexpected %s", line)
	}
	l, err := net.Listen("unix", os.Getenv(playVariable))
	if err != nil {
		return err
	}
	return http.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		k := read()
		user, password, _ := r.BasicAuth()
		right := user == k.User && password == k.Password && user != ""
		switch {
		case r.URL.Path == "/api/healthz":
		case r.Method == http.MethodPatch && r.Header.Get("Authorization") == "token "+k.Token && k.Token != "":
			var body struct{ Password string }
			_ = json.NewDecoder(r.Body).Decode(&body)
			k.Password = body.Password
			if len(body.Password) < 8 {
				w.WriteHeader(http.StatusBadRequest)
				fmt.Fprintf(w, `{"message":"PasswordTooShort: %s"}`, body.Password)
				return
			}
			_ = write(k)
		case !right:
			w.WriteHeader(http.StatusUnauthorized)
		case r.Method == http.MethodDelete:
			k.Token = ""
			_ = write(k)
			w.WriteHeader(http.StatusNoContent)
		}
	}))
}

// The administrator has the password afterwards, which was no command's argument, and no token is left. Where it has
// the password nothing is changed.
func TestAdministrator(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	home, err := os.MkdirTemp("/tmp", "gitea") // a socket's path has to be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(home) })
	socket := filepath.Join(home, "s")
	s := server{program: self, data: home, env: append(os.Environ(), playVariable+"="+socket)}
	dir := filepath.Dir(s.file())
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	state := func() (k known, commands string) {
		data, _ := os.ReadFile(filepath.Join(dir, "user.json"))
		_ = json.Unmarshal(data, &k)
		log, _ := os.ReadFile(filepath.Join(dir, "user.json.log"))
		_ = os.Remove(filepath.Join(dir, "user.json.log"))
		return k, string(log)
	}
	for _, c := range []struct{ password, commands string }{
		{"first-password", "create"}, {"first-password", ""}, {"second-password", "create"}, {"second-password", ""},
	} {
		_ = os.Remove(socket)
		if err := s.ensureAdministrator(ctx, socket, administrator{"gitea_admin", c.password}); err != nil {
			t.Fatal(err)
		}
		k, commands := state()
		if k != (known{User: "gitea_admin", Password: c.password}) {
			t.Errorf("the user is %+v", k)
		}
		if strings.Contains(commands, c.password) || strings.Contains(commands, "create") != (c.commands != "") {
			t.Errorf("with %s there were the commands\n%s", c.password, commands)
		}
	}
	_ = os.Remove(socket)
	err = s.ensureAdministrator(ctx, socket, administrator{"gitea_admin", "short"})
	if err == nil || !strings.Contains(err.Error(), "PasswordTooShort") || strings.Contains(err.Error(), "short") {
		t.Errorf("a refused password: %v", err)
	}

	s.program = "/bin/false"
	if err := s.ensureAdministrator(ctx, socket+"2", administrator{"gitea_admin", "first-password"}); err == nil ||
		!strings.Contains(err.Error(), "ended") {
		t.Errorf("a web server that ends: %v", err)
	}
}
