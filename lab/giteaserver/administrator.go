package giteaserver

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

// administrator is a user of Gitea's API.
type administrator struct{ user, password string }

// How long Gitea may take to answer for the first time, and to end.
const (
	answerWithin = 2 * time.Minute
	endWithin    = 10 * time.Second
	lookEvery    = 50 * time.Millisecond
)

// email is the administrator's address, the chart's default.
const email = "gitea@local.domain"

// ensureAdministrator makes sure that the administrator exists with this password. Gitea's commands take a password as
// an argument only, which others on the machine could read. So a new user gets a random one, and the password goes
// through the API, of a Gitea that serves nobody else meanwhile.
func (s server) ensureAdministrator(ctx context.Context, socket string, who administrator) (err error) {
	cmd := exec.Command(s.program, "web", "--config", s.file())
	cmd.Env, cmd.Stdout, cmd.Stderr = s.env, os.Stdout, os.Stderr
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start gitea web: %w", err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	defer func() { err = errors.Join(err, end(cmd, ended)) }()
	api := newAPI(socket)
	if err := api.awaitHealth(ctx, ended); err != nil {
		return err
	}
	switch status, err := api.as(ctx, who); {
	case err != nil:
		return err
	case status == http.StatusOK:
		return nil
	case status != http.StatusUnauthorized:
		return fmt.Errorf("log in: Gitea answers %d", status)
	}
	_, created := s.run(ctx, "admin", "user", "create", "--username", who.user, "--email", email, "--admin",
		"--random-password", "--must-change-password=false")
	name := "lab-" + rand.Text()
	token, err := s.run(ctx, "admin", "user", "generate-access-token", "--username", who.user, "--token-name", name,
		"--scopes", "write:admin", "--raw")
	if err != nil { // created has the reason, unless the user existed
		return errors.Join(created, err)
	}
	if err := api.setPassword(ctx, token, who); err != nil {
		return err
	}
	return api.removeToken(ctx, who, name)
}

// end ends Gitea.
func end(cmd *exec.Cmd, ended <-chan error) error {
	_ = cmd.Process.Signal(syscall.SIGTERM) // fails where it has ended
	select {
	case <-ended:
		return nil
	case <-time.After(endWithin):
	}
	if err := cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("end gitea web: %w", err)
	}
	<-ended
	return nil
}

// errEnded is the end of a web server that was to stay.
var errEnded = errors.New("it does not serve")

// api is Gitea's API at a Unix socket.
type api struct{ client *http.Client }

func newAPI(socket string) api {
	return api{client: &http.Client{Timeout: time.Minute, Transport: &http.Transport{DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", socket)
		}}}}
}

// send sends a request and returns the answer's status, with what the API says about a refusal.
func (a api) send(ctx context.Context, method, path string, allow func(*http.Request), body any) (int, string, error) {
	var content io.Reader
	if body != nil {
		data, err := json.Marshal(body)
		if err != nil {
			return 0, "", err
		}
		content = bytes.NewReader(data)
	}
	r, err := http.NewRequestWithContext(ctx, method, "http://gitea"+path, content)
	if err != nil {
		return 0, "", err
	}
	r.Header.Set("Content-Type", "application/json")
	allow(r)
	answer, err := a.client.Do(r)
	if err != nil {
		return 0, "", err
	}
	defer answer.Body.Close()
	var refusal struct{ Message string }
	_ = json.NewDecoder(io.LimitReader(answer.Body, 1<<20)).Decode(&refusal) // of success there is no message
	return answer.StatusCode, refusal.Message, nil
}

// awaitHealth waits until Gitea answers.
func (a api) awaitHealth(ctx context.Context, ended chan error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, answerWithin,
		fmt.Errorf("gitea web did not answer within %s", answerWithin))
	defer cancel()
	ticker := time.NewTicker(lookEvery)
	defer ticker.Stop()
	for {
		if status, _, err := a.send(ctx, http.MethodGet, "/api/healthz", func(*http.Request) {}, nil); err == nil &&
			status == http.StatusOK {
			return nil
		}
		select {
		case err := <-ended:
			ended <- err // for who ends it
			return fmt.Errorf("gitea web ended, its log is above: %w", errors.Join(err, errEnded))
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-ticker.C:
		}
	}
}

// as is the status of a request with the administrator's password.
func (a api) as(ctx context.Context, who administrator) (int, error) {
	status, _, err := a.send(ctx, http.MethodGet, "/api/v1/user", who.basic, nil)
	return status, err
}

func (who administrator) basic(r *http.Request) { r.SetBasicAuth(who.user, who.password) }

// setPassword changes the administrator's password with an access token.
func (a api) setPassword(ctx context.Context, token string, who administrator) error {
	status, message, err := a.send(ctx, http.MethodPatch, "/api/v1/admin/users/"+url.PathEscape(who.user),
		func(r *http.Request) { r.Header.Set("Authorization", "token "+token) },
		map[string]any{"login_name": who.user, "source_id": 0, "password": who.password, "must_change_password": false,
			"admin": true})
	if err == nil && status != http.StatusOK {
		err = fmt.Errorf("Gitea answers %d: %s", status, strings.ReplaceAll(message, who.password, "…"))
	}
	if err != nil {
		return fmt.Errorf("set the password: %w", err)
	}
	return nil
}

// removeToken removes an access token of the administrator.
func (a api) removeToken(ctx context.Context, who administrator, name string) error {
	status, message, err := a.send(ctx, http.MethodDelete,
		"/api/v1/users/"+url.PathEscape(who.user)+"/tokens/"+name, who.basic, nil)
	if err == nil && status != http.StatusNoContent {
		err = fmt.Errorf("Gitea answers %d: %s", status, message)
	}
	if err != nil {
		return fmt.Errorf("remove the access token that set the password: %w", err)
	}
	return nil
}
