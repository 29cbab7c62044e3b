package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud/schema"
	"go.etcd.io/etcd/server/v3/storage/mvcc"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/base/redact"
	"github.com/slipway-k8s/slipway/internal/client/etcd"
	"github.com/slipway-k8s/slipway/internal/client/etcd/etcdtest"
	"github.com/slipway-k8s/slipway/internal/client/hetzner/hetznertest"
	"github.com/slipway-k8s/slipway/internal/cluster/backup"
	"github.com/slipway-k8s/slipway/internal/cluster/records"
	"github.com/slipway-k8s/slipway/internal/operation/forecast"
	"github.com/slipway-k8s/slipway/internal/operation/recovery/restore"
	"github.com/slipway-k8s/slipway/internal/state/backupfile"
	"github.com/slipway-k8s/slipway/internal/state/runs"
	"github.com/slipway-k8s/slipway/internal/state/settings"
	"github.com/slipway-k8s/slipway/internal/state/statedir"
	"github.com/slipway-k8s/slipway/platform"
)

// lostCluster is what a backup holds of a cluster at the least.
const lostCluster = `
- {apiVersion: cluster.x-k8s.io/v1beta1, kind: Cluster, metadata: {name: k8s, namespace: default}}
- apiVersion: infrastructure.cluster.x-k8s.io/v1beta1
  kind: HetznerCluster
  metadata: {name: k8s, namespace: default}
  spec:
    controlPlaneRegions: [nbg1]
    controlPlaneEndpoint: {host: 192.0.2.7, port: 6443}
    controlPlaneLoadBalancer: {enabled: true, type: lb11, region: nbg1}
    hcloudNetwork: {enabled: true, cidrBlock: 10.10.0.0/16}
  status: {controlPlaneLoadBalancer: {ipv4: 192.0.2.7}}
- apiVersion: controlplane.cluster.x-k8s.io/v1alpha3
  kind: TalosControlPlane
  metadata: {name: k8s-control-plane, namespace: default}
  spec: {replicas: 5, version: v1.32.2, infrastructureTemplate: {name: t}}
- apiVersion: infrastructure.cluster.x-k8s.io/v1beta1
  kind: HCloudMachineTemplate
  metadata: {name: t, namespace: default}
  spec: {template: {spec: {type: cx33, imageName: talos-v1}}}
`

// writeLostCluster writes the backup of a cluster with five servers.
func writeLostCluster(t *testing.T, path string, taken time.Time) {
	t.Helper()
	var objects []map[string]any
	if err := yaml.Unmarshal([]byte(lostCluster), &objects); err != nil {
		t.Fatal(err)
	}
	c := backup.Contents{Header: backup.Header{Cluster: "k8s", UID: "uid-of-the-lost", Taken: taken, SelfManaged: true}}
	for _, o := range objects {
		c.Objects = append(c.Objects, unstructured.Unstructured{Object: o})
	}
	c.Secrets = []unstructured.Unstructured{{Object: map[string]any{
		"apiVersion": "v1", "kind": "Secret", "metadata": map[string]any{"name": "k8s-talos", "namespace": "default"},
		"data": map[string]any{"bundle": "a2V5cw=="},
	}}}
	var database, file bytes.Buffer
	etcdtest.Snapshot(t, &database, c.Header.UID, func(store mvcc.KV) {
		etcdtest.PutDeployment(t, store, "caph-controller-manager",
			map[string]string{"cluster.x-k8s.io/provider": "infrastructure-hetzner"}, 1)
		etcdtest.PutDeployment(t, store, "theirs", nil, 1)
	})
	if _, err := backup.Write(&file, backup.Seal{Unencrypted: true}, c, &database); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, file.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
}

// noManagement is a machine without a management cluster, on which none can be made.
type noManagement struct{}

func (noManagement) Name() string                                 { return "none" }
func (noManagement) Exists(context.Context, string) (bool, error) { return false, nil }
func (noManagement) Delete(context.Context, string) error         { return nil }
func (noManagement) Ensure(context.Context, string, flow.Say) ([]byte, error) {
	return nil, errors.New("there is no room for a management cluster")
}

// restoring runs the command at a terminal, where a person gives an answer.
func restoring(t *testing.T, dir, environment, answer string, args ...string) ran {
	t.Helper()
	var stdout, stderr bytes.Buffer
	c := &console{
		stdin: strings.NewReader(answer), stdout: &stdout, stderr: &stderr,
		environment: settings.Environ(strings.Fields(environment)), workDir: dir,
		size: func() (int, int) { return 100, 30 }, hide: &redact.Redactor{},
		equip: func(tools *platform.Tools) { tools.Management = noManagement{} },
	}
	code := c.execute(t.Context(), append([]string{"restore", "lost", "--unencrypted", "--skip-doctor"}, args...))
	// without the ends of the terminal's lines
	return ran{code, stdout.String(), strings.Join(strings.Fields(stderr.String()), " ")}
}

func TestRestoreAsksOnceBeforeItSpends(t *testing.T) {
	market := newMarket(t)
	dir := t.TempDir()
	t.Chdir(dir)
	writeLostCluster(t, "lost", time.Now().Add(-3*time.Hour-20*time.Minute))
	// An earlier restore has ended in the same folder: this one begins anew, and sets it aside once it is agreed to.
	earlier := records.RestoreFiles(platform.FilesIn(filepath.Join(dir, statedir.StateFolderIn, "k8s")))
	ended := records.Restore{ClusterIdentity: backup.ClusterIdentity{Cluster: "k8s", UID: "earlier"},
		Began: time.Now().UTC().Add(-time.Hour), Ended: time.Now().UTC()}
	if err := ended.Write(platform.FilesIn(filepath.Dir(earlier.String()))); err != nil {
		t.Fatal(err)
	}
	was := flow.Snapshot{Steps: map[string]flow.Record{}}
	for _, step := range restorePlan(t, dir).Graph.Steps() {
		was.Steps[step.Name] = flow.Record{State: flow.StateDone}
	}
	if err := flow.Folder(earlier.String()).Save(t.Context(), was); err != nil {
		t.Fatal(err)
	}
	const question = "Go ahead? [yes/no]"
	for _, answer := range []string{"no\n", "", "y\n"} {
		r := restoring(t, dir, inProject(market), answer)
		if r.code != ExitFailed || strings.Count(r.stderr, question) != 1 || !strings.Contains(r.stderr, "not confirmed") {
			t.Errorf("%q: %+v", answer, r)
		}
		for _, want := range []string{
			"5 server", "together 36.00 EUR a month more", "since is lost", "3h20m", "another address than 192.0.2.7",
			"etcd-bootstrap run",
		} {
			if !strings.Contains(strings.Join(strings.Fields(r.stdout), " "), want) { // in lines of the terminal's width
				t.Errorf("%q: it does not say %q:\n%s", answer, want, r.stdout)
			}
		}
	}
	if w := market.Writes(); len(w) > 0 {
		t.Errorf("without a yes it wrote %v", w)
	}
	aside := filepath.Join(dir, statedir.StateFolderIn, "k8s", "restore-*")
	if moved, err := filepath.Glob(aside); err != nil || len(moved) > 0 {
		t.Errorf("without a yes the earlier restore was set aside: %v, %v", moved, err)
	}
	offerImage(market)
	for name, r := range map[string]ran{
		"a yes":         restoring(t, dir, inProject(market), "yes\n"),
		"--yes":         restoring(t, dir, inProject(market), "", "--yes"),
		"--output json": restoring(t, dir, inProject(market), "", "--output", "json"),
	} {
		if asked := strings.Contains(r.stderr, question); asked != (name == "a yes") || r.code != ExitFailed ||
			!strings.Contains(r.stderr, "no room for a management cluster") {
			t.Errorf("%s: %+v", name, r)
		}
	}
	if moved, err := filepath.Glob(aside); err != nil || len(moved) != 1 {
		t.Errorf("with a yes the earlier restore is not set aside: %v, %v", moved, err)
	}
}

// offerImage has the image of the lost cluster in the project: without it the step image, which runs at the same time,
// may fail before the management cluster is asked for.
func offerImage(market *hetznertest.Server) {
	market.Put("images", 1, hetznertest.Image(1, "talos-v1", "x86", "available"))
}

// What goes to a server knows nothing of the Cluster API that managed the lost cluster.
func TestTheLostClusterAPIDoesNotWakeUp(t *testing.T) {
	market := newMarket(t)
	dir := t.TempDir()
	t.Chdir(dir)
	writeLostCluster(t, "lost", time.Now())
	offerImage(market)
	r := restoring(t, dir, inProject(market), "", "--yes")
	if r.code != ExitFailed || !strings.Contains(r.stderr, "no room for a management cluster") {
		t.Fatalf("%+v", r)
	}
	is, err := etcd.Inspect(filepath.Join(dir, statedir.StateFolderIn, "k8s", "restore", records.SnapshotFile),
		filepath.Join(dir, "member"))
	if err != nil || is.Keys != 4 || is.UID != "uid-of-the-lost" { // kube-system, and what is theirs
		t.Errorf("the snapshot holds %+v, %v", is, err)
	}
	if said := strings.Join(strings.Fields(r.stdout), " "); !strings.Contains(said, "space/caph-controller-manager") {
		t.Errorf("it does not say so: %s", said)
	}
}

func TestRestoreOnPaper(t *testing.T) {
	market := newMarket(t)
	dir := t.TempDir()
	t.Chdir(dir)
	writeLostCluster(t, "lost", time.Now().Add(-time.Hour))
	market.Put("load_balancers", 9, schema.LoadBalancer{
		Name: "k8s-kube-apiserver-x", Labels: map[string]string{"caph-cluster-k8s": "owned"},
		PublicNet: schema.LoadBalancerPublicNet{IPv4: schema.LoadBalancerPublicNetIPv4{IP: "192.0.2.7"}},
	})
	before := folderContents(t, dir)
	r := restoring(t, dir, inProject(market), "", "-n", "--output", "json")
	var f forecast.Forecast
	if err := json.Unmarshal([]byte(r.stdout), &f); err != nil || r.code != ExitDone {
		t.Fatalf("%v, %+v", err, r)
	}
	losses := strings.Join(f.Losses, "\n")
	if !strings.Contains(losses, "k8s-kube-apiserver-x survived: the cluster keeps its address 192.0.2.7") ||
		f.Bill == nil || f.Bill.Monthly.Monthly >= 36 || len(f.Steps) < 20 {
		t.Errorf("%s; %+v", losses, f)
	}
	if after := folderContents(t, dir); after != before || len(market.Writes()) > 0 {
		t.Errorf("planning changed something: %v\n%s\n%s", market.Writes(), before, after)
	}
	state := platform.FilesIn(filepath.Join(dir, statedir.StateFolderIn, "k8s"))
	another := records.Restore{ClusterIdentity: backup.ClusterIdentity{Cluster: "k8s", UID: "another"}, Began: time.Now()}
	if err := another.Write(state); err != nil {
		t.Fatal(err)
	}
	if r := restoring(t, dir, inProject(market), "", "-n"); r.code != ExitFailed ||
		!strings.Contains(r.stderr, "the restore of another backup of cluster k8s") {
		t.Errorf("in the middle of another restore: %+v", r)
	}
	if err := records.RestoreFiles(state).RemoveFolder(); err != nil {
		t.Fatal(err)
	}
	market.Put("servers", 5, schema.Server{Name: "k8s-control-plane-1",
		Labels: map[string]string{"caph-cluster-k8s": "owned"}, Status: "off"})
	if r := restoring(t, dir, inProject(market), "", "-n"); r.code != ExitFailed ||
		!strings.Contains(r.stderr, "is not lost") {
		t.Errorf("with a server: %+v", r)
	}
	if r := restoring(t, dir, inProject(market), "", "--yes"); r.code != ExitFailed ||
		!strings.Contains(r.stderr, "is not lost") {
		t.Errorf("with a server, and agreed to: %+v", r)
	}
	if left, err := filepath.Glob(filepath.Join(dir, statedir.StateFolderIn, "*", "restore", "*")); err != nil ||
		len(left) > 0 {
		t.Errorf("a refused restore leaves %v, %v", left, err)
	}
}

func TestEveryStepOfARestoreHasABuiltInDuration(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	writeLostCluster(t, "lost", time.Now())
	for _, environment := range []string{statedir.EnvironmentLab, statedir.EnvironmentHetzner} {
		took := runs.ReadDurations(statedir.Dir(dir), environment)
		for _, s := range restorePlan(t, dir).Graph.Steps() {
			if d, recorded := took.Of(s.Name); d <= 0 || recorded {
				t.Errorf("%s: step %s takes %s", environment, s.Name, d)
			}
		}
	}
}

func restorePlan(t *testing.T, dir string) *restore.Plan {
	t.Helper()
	contents, _, err := backupfile.Access{Config: config.Defaults(), Environment: map[string]string{}, WorkDir: dir,
		Hide: &redact.Redactor{}}.File("lost", backupfile.Accept{}).Verify(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	plan, err := restore.New(config.Defaults(), platform.Tools{Management: noManagement{}},
		backup.Cluster{Contents: contents})
	if err != nil {
		t.Fatal(err)
	}
	return plan
}
