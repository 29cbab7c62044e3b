package test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-k8s/slipway/internal/client/kube"
)

// forgedKubeconfig is what an attacker does who can write the cluster's Secrets, or the state folder's files: no program
// of theirs is run, no file of the operator's is sent, and the kubeconfig that works stays.
func (p *pivoted) forgedKubeconfig(t *testing.T) {
	c := *p.command
	c.t = t
	file := filepath.Join(c.state, "kubeconfig")
	good := must(os.ReadFile(file))(t)
	marker, token := filepath.Join(t.TempDir(), "ran"), filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte("a-token-of-the-operator"), 0o600); err != nil {
		t.Fatal(err)
	}
	var asked atomic.Int64
	attacker := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked.Add(1) }))
	defer attacker.Close()

	self := must(kube.Connect(good))(t)
	secret := &corev1.Secret{}
	key := client.ObjectKey{Namespace: "default", Name: "k8s-kubeconfig"}
	if err := self.Get(t.Context(), key, secret); err != nil {
		t.Fatal(err)
	}
	put := func(t *testing.T, value []byte) {
		t.Helper()
		is := &corev1.Secret{}
		if err := self.Get(t.Context(), key, is); err != nil {
			t.Fatal(err)
		}
		changed := is.DeepCopy()
		changed.Data["value"] = value
		if err := self.Patch(t.Context(), changed, client.MergeFrom(is)); err != nil {
			t.Fatal(err)
		}
	}
	defer put(t, secret.Data["value"])
	look := func(t *testing.T, o string, field string) {
		t.Helper()
		if !strings.Contains(o, "field "+field+" of ") {
			t.Errorf("the output does not name %s:\n%s", field, o)
		}
		if _, err := os.Stat(marker); err == nil {
			t.Fatal("the attacker's program was run")
		}
		if asked.Load() > 0 {
			t.Fatal("the attacker's server was asked")
		}
	}
	for field, change := range map[string]func(*clientcmdapi.Cluster, *clientcmdapi.AuthInfo){
		"exec": func(_ *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) {
			*u = clientcmdapi.AuthInfo{Exec: &clientcmdapi.ExecConfig{APIVersion: "client.authentication.k8s.io/v1",
				Command: "sh", Args: []string{"-c", fmt.Sprintf("touch %q", marker)},
				InteractiveMode: clientcmdapi.NeverExecInteractiveMode}}
		},
		"insecure-skip-tls-verify": func(c *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) {
			*c = clientcmdapi.Cluster{Server: attacker.URL, InsecureSkipTLSVerify: true}
			*u = clientcmdapi.AuthInfo{TokenFile: token}
		},
	} {
		t.Run(field, func(t *testing.T) {
			c := c
			c.t = t
			forged := forge(t, good, change)
			put(t, forged)
			if o := c.run(nil, "all", "--lab"); o.exit == 0 {
				t.Errorf("all succeeds:\n%s", o.output)
			} else if look(t, o.output, field); !strings.Contains(o.output, key.Name) {
				t.Errorf("the output does not name the Secret:\n%s", o.output)
			}
			if is := must(os.ReadFile(file))(t); string(is) != string(good) {
				t.Errorf("the kubeconfig in the state folder is\n%s", is)
			}
			put(t, secret.Data["value"])

			// The same as a file, as from a store that others can write.
			if err := os.WriteFile(file, forged, 0o600); err != nil {
				t.Fatal(err)
			}
			defer func() {
				if err := os.WriteFile(file, good, 0o600); err != nil {
					t.Error(err)
				}
			}()
			for _, target := range []string{"status", "all"} {
				ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
				o, _ := c.exec(ctx, target, "--lab")
				cancel()
				if look(t, o, field); !strings.Contains(o, file) {
					t.Errorf("%s does not name the file:\n%s", target, o)
				}
			}
		})
	}
	if o := c.run(nil, "all", "--lab"); o.exit != 0 {
		t.Errorf("all, with what the provider wrote: exit %d\n%s", o.exit, o.end())
	}
}

// forge changes the cluster and the user of a kubeconfig.
func forge(t *testing.T, good []byte, change func(*clientcmdapi.Cluster, *clientcmdapi.AuthInfo)) []byte {
	t.Helper()
	config := must(clientcmd.Load(good))(t)
	current := config.Contexts[config.CurrentContext]
	change(config.Clusters[current.Cluster], config.AuthInfos[current.AuthInfo])
	return must(clientcmd.Write(*config))(t)
}
