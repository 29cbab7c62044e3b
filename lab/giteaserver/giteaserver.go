// Package giteaserver runs the unmodified Gitea behind its Pod, as the init containers and the image of its chart do:
// it writes the configuration, creates the database, sees to the administrator, and becomes Gitea's web server.
package giteaserver

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/slipway-k8s/slipway/lab/standin"
)

// server is Gitea with its folders.
type server struct {
	program string // Gitea's executable
	static  string // folder of its templates and locales
	listen  string // address of its API and of Git
	data    string // folder of everything that it keeps
	config  string // folder of the chart's configuration, a file for each section
	env     []string
}

// Run runs Gitea. The administrator is in GITEA_ADMIN_USERNAME and GITEA_ADMIN_PASSWORD. Where nothing fails it does
// not return: the process is Gitea's from then on.
func Run(ctx context.Context, args []string) error {
	var s server
	flags := flag.NewFlagSet("gitea-server", flag.ContinueOnError)
	flags.StringVar(&s.program, "program", "", "Gitea's executable")
	flags.StringVar(&s.static, "static", "", "folder of Gitea's templates and locales")
	flags.StringVar(&s.listen, "listen", "127.0.0.1:3000", "address to listen on")
	flags.StringVar(&s.data, "data", "", "folder for everything that Gitea keeps")
	flags.StringVar(&s.config, "config", "", "folder of the chart's configuration")
	if err := flags.Parse(args); err != nil {
		return err
	}
	who := administrator{user: os.Getenv(userVariable), password: os.Getenv(passwordVariable)}
	if s.program == "" || s.static == "" || s.data == "" || who.user == "" || who.password == "" {
		return fmt.Errorf("give --program, --static, --data, %s and %s", userVariable, passwordVariable)
	}
	address, err := standin.Loopback(s.listen)
	if err != nil {
		return err
	}
	s.listen, s.data = address, filepath.Join(s.data, "gitea")
	s.env = slices.DeleteFunc(os.Environ(), func(e string) bool { // Gitea itself needs neither
		return strings.HasPrefix(e, userVariable+"=") || strings.HasPrefix(e, passwordVariable+"=")
	})
	if err := s.prepare(ctx, who); err != nil {
		return fmt.Errorf("prepare Gitea: %w", err)
	}
	return syscall.Exec(s.program, []string{s.program, "web", "--config", s.file()}, s.env)
}

// The variables of the administrator, as the chart calls them.
const (
	userVariable     = "GITEA_ADMIN_USERNAME"
	passwordVariable = "GITEA_ADMIN_PASSWORD"
)

// file is Gitea's configuration. It is the same one throughout: Gitea writes its path into the hooks of repositories.
func (s server) file() string { return filepath.Join(s.data, "conf", "app.ini") }

// prepare leaves the configuration and the database as the web server needs them.
func (s server) prepare(ctx context.Context, who administrator) error {
	values, err := readSections(s.config)
	if err != nil {
		return err
	}
	if err := s.secrets(); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("/tmp", "gitea-") // a socket's path has to be short
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	socket := filepath.Join(dir, "gitea.sock")
	if err := s.write(s.configuration(values, listener{socket: socket})); err != nil {
		return err
	}
	if _, err := s.run(ctx, "migrate"); err != nil {
		return err
	}
	if err := s.ensureAdministrator(ctx, socket, who); err != nil {
		return fmt.Errorf("the administrator %s: %w", who.user, err)
	}
	host, port, err := net.SplitHostPort(s.listen)
	if err != nil {
		return err
	}
	if host == "" {
		host = "0.0.0.0"
	}
	return s.write(s.configuration(values, listener{host: host, port: port}))
}

// run runs one of Gitea's commands and returns what it says. Gitea's log comes before that, on the same output.
func (s server) run(ctx context.Context, args ...string) (string, error) {
	args = append(args, "--config", s.file())
	cmd := exec.CommandContext(ctx, s.program, args...)
	cmd.Env, cmd.Stderr = s.env, os.Stderr
	out, err := cmd.Output()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return "", fmt.Errorf("gitea %s: %w: %s", strings.Join(args[:min(3, len(args))], " "), exit, lastLine(string(out)))
	}
	return lastLine(string(out)), err
}

func lastLine(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return lines[len(lines)-1]
}
