package connect_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/slipway-k8s/slipway/internal/client/kube/kubetest"
	"github.com/slipway-k8s/slipway/internal/client/kubeconfig"
	"github.com/slipway-k8s/slipway/internal/cluster/connect"
	"github.com/slipway-k8s/slipway/platform"
)

func discard(string, ...any) {}

func newTools(t *testing.T) platform.Tools {
	t.Helper()
	return platform.Tools{Files: platform.FilesIn(t.TempDir())}.WithDefaults()
}

func newServer(t *testing.T, uid string) *kubetest.Server {
	t.Helper()
	s := kubetest.New(uid)
	t.Cleanup(s.Close)
	return s
}

func write(t *testing.T, tools platform.Tools, file string, data []byte) {
	t.Helper()
	if err := tools.Files.Write(file, data); err != nil {
		t.Fatal(err)
	}
}

// renewed is a kubeconfig of the same cluster with other credentials.
func renewed(data []byte) []byte {
	return bytes.Replace(data, []byte("token: test"), []byte("token: renewed"), 1)
}

// at is a kubeconfig for a server with an authority.
func at(server string, authority []byte) []byte {
	return fmt.Appendf(nil, `apiVersion: v1
kind: Config
current-context: test
contexts: [{name: test, context: {cluster: test, user: test}}]
clusters: [{name: test, cluster: {server: "%s", certificate-authority-data: %s}}]
users: [{name: test, user: {token: attacker}}]
`, server, base64.StdEncoding.EncodeToString(authority))
}

// silent is an address of loopback on which nothing listens.
const silent = "https://127.0.0.1:1"

// A kubeconfig that is there is replaced by one of the same cluster that opens it, and by no other.
func TestReplace(t *testing.T) {
	good, other := newServer(t, "workload"), newServer(t, "attacker")
	exec := bytes.Replace(good.Kubeconfig(), []byte("token: test"),
		[]byte(`token: test, exec: {apiVersion: client.authentication.k8s.io/v1, command: sh}`), 1)
	lost := at(silent, good.Authority()) // of a cluster that is no more
	for what, c := range map[string]struct {
		is, offered  []byte
		endpoints    []string
		byManagement bool
		taken        bool
		foreign      bool
	}{
		"the first": {offered: good.Kubeconfig(), taken: true},
		"the same":  {is: good.Kubeconfig(), offered: good.Kubeconfig(), taken: true},
		"renewed":   {is: good.Kubeconfig(), offered: renewed(good.Kubeconfig()), taken: true},
		"renewed, by management": {is: good.Kubeconfig(), offered: renewed(good.Kubeconfig()), byManagement: true,
			taken: true},
		"runs a program, the first": {offered: exec},
		"runs a program":            {is: good.Kubeconfig(), offered: exec},
		"another authority":         {is: good.Kubeconfig(), offered: other.Kubeconfig(), foreign: true},
		"another authority, management": {is: good.Kubeconfig(), offered: other.Kubeconfig(), byManagement: true,
			foreign: true},
		"another authority at a known address": {is: good.Kubeconfig(), offered: other.Kubeconfig(),
			endpoints: []string{strings.TrimPrefix(other.URL, "https://")}, foreign: true},
		"another endpoint": {is: good.Kubeconfig(), offered: at(other.URL, good.Authority()), foreign: true},
		"another endpoint, which is the cluster's": {is: lost, offered: good.Kubeconfig(),
			endpoints: []string{strings.TrimPrefix(good.URL, "https://")}, taken: true},
		"created again":                   {is: lost, offered: other.Kubeconfig(), byManagement: true, taken: true},
		"damaged, fetched anew":           {is: []byte("{{"), offered: good.Kubeconfig(), byManagement: true, taken: true},
		"runs a program, in place of bad": {is: []byte("{{"), offered: exec, byManagement: true},
	} {
		t.Run(what, func(t *testing.T) {
			tools := newTools(t)
			if c.is != nil {
				write(t, tools, platform.Kubeconfig, c.is)
			}
			err := connect.Replace(t.Context(), tools, discard, connect.Offered{Data: c.offered,
				Source: "Secret default/k8s-kubeconfig", Endpoints: c.endpoints, ByManagement: c.byManagement})
			want := c.is
			if c.taken {
				want = c.offered
			}
			if is, _ := tools.Files.Read(platform.Kubeconfig); !bytes.Equal(is, want) {
				t.Errorf("the state folder has\n%s", is)
			}
			if c.taken != (err == nil) {
				t.Fatal(err)
			}
			if foreign := errors.As(err, new(*connect.ForeignError)); foreign != c.foreign {
				t.Error(err)
			}
			if err != nil && !strings.Contains(err.Error(), "Secret default/k8s-kubeconfig") {
				t.Errorf("the error does not name the Secret: %v", err)
			}
			if bytes.Equal(c.offered, exec) && !strings.Contains(err.Error(), "exec") {
				t.Errorf("the error does not name the field: %v", err)
			}
		})
	}
}

// A kubeconfig of the same cluster whose credentials the API does not take leaves the one that is there.
func TestReplaceWaitsForAnAnswer(t *testing.T) {
	good := newServer(t, "workload")
	offered := renewed(good.Kubeconfig())
	good.Fail = func(r *http.Request) (int, string) {
		if r.Header.Get("Authorization") == "Bearer renewed" {
			return 401, "Unauthorized"
		}
		return 0, ""
	}
	tools := newTools(t)
	write(t, tools, platform.Kubeconfig, good.Kubeconfig())
	ctx, cancel := context.WithCancel(t.Context())
	asked := false
	err := connect.Replace(ctx, tools, func(string, ...any) { asked = true; cancel() },
		connect.Offered{Data: offered, Source: "Secret default/k8s-kubeconfig"})
	if err == nil || !asked {
		t.Error(err)
	}
	if is, _ := tools.Files.Read(platform.Kubeconfig); !bytes.Equal(is, good.Kubeconfig()) {
		t.Errorf("the state folder has\n%s", is)
	}
}

// A file in the state folder that is damaged, or does more than open a cluster, is named, and how to fetch it anew.
func TestFileThatIsNotAccepted(t *testing.T) {
	tools := newTools(t)
	marker := filepath.Join(t.TempDir(), "ran")
	for _, data := range []string{"{{", fmt.Sprintf(`{"kind":"Config","users":[{"name":"a","user":{"exec":`+
		`{"command":"sh","args":["-c","touch %s"],"apiVersion":"client.authentication.k8s.io/v1"}}}]}`, marker)} {
		for _, file := range []string{platform.Kubeconfig, platform.ManagementKubeconfig} {
			write(t, tools, file, []byte(data))
			_, err := connect.Cluster(tools, file)
			if !kubeconfig.Refused(err) || !strings.Contains(err.Error(), tools.Files.Path(file)) ||
				!strings.Contains(err.Error(), "anew") {
				t.Errorf("%s: %v", file, err)
			}
		}
	}
	if _, err := os.Stat(marker); err == nil {
		t.Error("the program was run")
	}
}

// own is a management cluster whose kubeconfig the operator named.
type own struct {
	platform.ManagementProvider
	data []byte
}

func (o own) OwnKubeconfig() ([]byte, error) { return o.data, nil }

// The operator's own kubeconfig of the management cluster may have everything; a file of the state folder that only
// looks like one is not used, and neither is it for the cluster itself.
func TestOperatorsOwnKubeconfig(t *testing.T) {
	mine, other := newServer(t, "management"), newServer(t, "attacker")
	asked := atomic.Bool{}
	other.Fail = func(*http.Request) (int, string) { asked.Store(true); return 0, "" }
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	byFile := func(s *kubetest.Server) []byte {
		return bytes.Replace(s.Kubeconfig(), []byte("token: test"), []byte("tokenFile: "+token), 1)
	}
	tools := newTools(t)
	tools.Management = own{data: byFile(mine)}
	for what, data := range map[string][]byte{"the same": byFile(mine), "another": byFile(other)} {
		write(t, tools, platform.ManagementKubeconfig, data)
		c, err := connect.Cluster(tools, platform.ManagementKubeconfig)
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		if uid, err := c.UID(t.Context()); err != nil || uid != "management" {
			t.Errorf("%s: %s, %v", what, uid, err)
		}
	}
	if asked.Load() {
		t.Error("the operator's token was sent elsewhere")
	}
	write(t, tools, platform.Kubeconfig, byFile(mine))
	if _, err := connect.Cluster(tools, platform.Kubeconfig); !kubeconfig.Refused(err) {
		t.Error(err)
	}
}
