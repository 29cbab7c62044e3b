package drill

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/base/redact"
	"github.com/slipway-k8s/slipway/internal/client/hetzner"
	"github.com/slipway-k8s/slipway/internal/client/kube"
	"github.com/slipway-k8s/slipway/internal/cluster/capi"
	"github.com/slipway-k8s/slipway/internal/cluster/connect"
	"github.com/slipway-k8s/slipway/internal/cluster/wait"
	"github.com/slipway-k8s/slipway/platform"
)

const (
	// drillNamespace holds everything that a drill writes into its cluster.
	drillNamespace = "slipway-drill"
	drillSecret    = "hidden"
	drillAccount   = "visitor"
	// drillRecords is how many ConfigMaps are there before the backup.
	drillRecords = 50
	// drillTokenSeconds outlasts a drill.
	drillTokenSeconds = int64(4 * 60 * 60)
	// writeEvery lies between two writes of the user whom a drill plays: it is how exactly a loss of data is measured.
	writeEvery = 250 * time.Millisecond
	loseWithin = 2 * time.Minute
)

// Marks are what a drill has written into a cluster, and what it remembers of it: after a restore the cluster is held
// against them.
type Marks struct {
	UID      string   // of kube-system
	CA       string   // what signs the API server's certificate, in PEM
	Endpoint string   // of the API
	Servers  []string // names
	Writes   []Write  // by the user, in their order

	word  platform.Secret // in every record and in the Secret
	token platform.Secret // of a service account, issued before the backup
}

// Write is an object that a user wrote.
type Write struct {
	Name string
	At   time.Time // when the API server had taken it
}

// rehearsed is the cluster of a drill, which is marked, lost, restored and compared.
type rehearsed struct {
	cfg   config.Config
	tools platform.Tools
	hide  *redact.Redactor
}

func newRehearsed(cfg config.Config, tools platform.Tools, hide *redact.Redactor) rehearsed {
	return rehearsed{cfg: cfg, tools: tools.WithDefaults(), hide: hide}
}

// mark writes marked data, a Secret and a service account into the cluster, and has a token issued.
func (d rehearsed) mark(ctx context.Context, say flow.Say) (*Marks, error) {
	c, err := connect.Cluster(d.tools, platform.Kubeconfig)
	if err != nil {
		return nil, err
	}
	m := &Marks{word: platform.NewSecret(rand.Text())}
	d.hide.Learn(m.word.Reveal())
	if m.CA, m.Endpoint, err = authority(d.tools); err != nil {
		return nil, err
	}
	if m.UID, err = c.UID(ctx); err != nil {
		return nil, err
	}
	servers, err := hetzner.Servers(ctx, d.tools.Hetzner, d.cfg.ClusterName)
	if err != nil {
		return nil, err
	}
	for _, s := range servers {
		m.Servers = append(m.Servers, s.Name)
	}
	objects := []*unstructured.Unstructured{drillObject("v1", "Namespace", drillNamespace, nil),
		drillObject("v1", "ServiceAccount", drillAccount, nil)}
	for i := range drillRecords {
		objects = append(objects,
			drillObject("v1", "ConfigMap", recordName(i), map[string]any{"data": map[string]any{"word": m.word.Reveal()}}))
	}
	objects = append(objects,
		drillObject("v1", "Secret", drillSecret, map[string]any{"stringData": map[string]any{"word": m.word.Reveal()}}))
	say("writing %d ConfigMaps, a Secret and a service account into namespace %s", drillRecords, drillNamespace)
	for _, object := range objects {
		if err := c.Create(ctx, object); err != nil {
			return nil, fmt.Errorf("write marked data, %s: %w", kube.Describe(object), err)
		}
	}
	m.token, err = issue(ctx, c)
	d.hide.Learn(m.token.Reveal())
	return m, err
}

// drillObject is an object in the drill's namespace.
func drillObject(apiVersion, kind, name string, fields map[string]any) *unstructured.Unstructured {
	object := &unstructured.Unstructured{Object: map[string]any{}}
	object.SetAPIVersion(apiVersion)
	object.SetKind(kind)
	object.SetName(name)
	if kind != "Namespace" {
		object.SetNamespace(drillNamespace)
	}
	maps.Copy(object.Object, fields)
	return object
}

func recordName(i int) string { return fmt.Sprintf("record-%02d", i) }

// issue has a token made for the drill's service account.
func issue(ctx context.Context, c *kube.Cluster) (platform.Secret, error) {
	request := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"expirationSeconds": drillTokenSeconds}}}
	request.SetGroupVersionKind(schema.GroupVersionKind{Group: "authentication.k8s.io", Version: "v1",
		Kind: "TokenRequest"})
	if err := c.SubResource("token").Create(ctx, drillObject("v1", "ServiceAccount", drillAccount, nil),
		request); err != nil {
		return platform.Secret{},
			fmt.Errorf("have a token issued for service account %s/%s: %w", drillNamespace, drillAccount, err)
	}
	token := capi.Text(request, "status", "token")
	if token == "" {
		return platform.Secret{},
			fmt.Errorf("the token issued for service account %s/%s is empty", drillNamespace, drillAccount)
	}
	return platform.NewSecret(token), nil
}

// authority is what signs the API server's certificate, and where that is, as the kubeconfig has them.
func authority(tools platform.Tools) (ca, endpoint string, err error) {
	data, err := tools.Files.Read(platform.Kubeconfig)
	if err != nil {
		return "", "", err
	}
	config, err := clientcmd.RESTConfigFromKubeConfig(data)
	if err != nil {
		return "", "", fmt.Errorf("read %s: %w", tools.Files.Path(platform.Kubeconfig), err)
	}
	return string(config.CAData), config.Host, nil
}

// use writes to the cluster, as a user does, until it is stopped; stop has it write so many times more and adds all
// writes to the marks. A write that fails ends the using, and stop says why.
func (d rehearsed) use(ctx context.Context, m *Marks) (stop func(more int) error, err error) {
	c, err := connect.Cluster(d.tools, platform.Kubeconfig)
	if err != nil {
		return nil, err
	}
	u := &user{cluster: c, last: make(chan int, 1), ended: make(chan error, 1)}
	go func() { u.ended <- u.write(ctx) }()
	return func(more int) error {
		u.last <- more
		err := <-u.ended
		m.Writes = append(m.Writes, u.writes...)
		return err
	}, nil
}

// user writes to a cluster.
type user struct {
	cluster *kube.Cluster
	writes  []Write
	last    chan int // gets how many more are to come
	ended   chan error
}

func (u *user) write(ctx context.Context) error {
	ticker := time.NewTicker(writeEvery)
	defer ticker.Stop()
	for left := -1; left != 0; {
		name := fmt.Sprintf("write-%04d", len(u.writes))
		if err := u.cluster.Create(ctx, drillObject("v1", "ConfigMap", name, nil)); err != nil {
			return fmt.Errorf("a user's write to the cluster, ConfigMap %s/%s: %w", drillNamespace, name, err)
		}
		u.writes = append(u.writes, Write{name, time.Now()})
		left = max(left-1, -1)
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case left = <-u.last:
		case <-ticker.C:
		}
	}
	return nil
}

// loseServers deletes every server of the cluster at once, directly at Hetzner: Cluster API is not asked. Everything
// else, its load balancer too, stays.
func (d rehearsed) loseServers(ctx context.Context, say flow.Say) error {
	w := wait.Wait{What: "every server to be gone", Within: loseWithin}
	return w.Until(ctx, say, func(ctx context.Context) (string, error) {
		servers, err := hetzner.Servers(ctx, d.tools.Hetzner, d.cfg.ClusterName)
		if err != nil || len(servers) == 0 {
			return "", err
		}
		var names []string
		var failed []error
		for _, s := range servers {
			names = append(names, s.Name)
			failed = append(failed, hetzner.DeleteServer(ctx, d.tools.Hetzner, s.ID))
		}
		return strings.Join(names, ", ") + " are being deleted", errors.Join(failed...)
	})
}

// surviving are those of the user's writes that are there.
func (d rehearsed) surviving(ctx context.Context, m *Marks) ([]Write, error) {
	c, err := connect.Cluster(d.tools, platform.Kubeconfig)
	if err != nil {
		return nil, err
	}
	there, err := drillData(ctx, c)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(slices.Clone(m.Writes), func(w Write) bool { _, ok := there[w.Name]; return !ok }), nil
}

// drillData are the drill's ConfigMaps, by name.
func drillData(ctx context.Context, c *kube.Cluster) (map[string]map[string]string, error) {
	maps := &corev1.ConfigMapList{}
	if err := c.List(ctx, maps, client.InNamespace(drillNamespace)); err != nil {
		return nil, fmt.Errorf("list the marked ConfigMaps: %w", err)
	}
	found := map[string]map[string]string{}
	for _, item := range maps.Items {
		found[item.Name] = item.Data
	}
	return found, nil
}
