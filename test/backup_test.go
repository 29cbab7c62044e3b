package test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"filippo.io/age"
	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-k8s/slipway/internal/client/kube"
)

// maxBackupMemory is the limit of a backup's resident memory, in bytes.
const maxBackupMemory = 250 << 20

// backsUp backs up a cluster that is in use, to a folder and to an S3 store, verifies both, and requires that the lab's
// records have no write by the command: it pauses nothing.
func backsUp(t *testing.T, c *command, selfManaged bool) {
	t.Helper()
	folder := t.TempDir()
	key, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	identity := filepath.Join(folder, "key.txt")
	if err := os.WriteFile(identity, []byte(key.String()+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	memory := s3mem.New()
	if err := memory.CreateBucket("backups"); err != nil {
		t.Fatal(err)
	}
	store := httptest.NewServer(gofakes3.New(memory, gofakes3.WithLogger(gofakes3.DiscardLog())).Server())
	defer store.Close()
	user := *c
	user.env = append(slices.Clone(c.env), "AWS_ACCESS_KEY_ID=access", "AWS_SECRET_ACCESS_KEY=plantedSecretKeyOfTheStore",
		"BACKUP_S3_ENDPOINT="+store.URL, "BACKUP_S3_REGION=nbg1", "BACKUP_RECIPIENTS="+key.Recipient().String())
	// The machine that makes backups has a key that authenticates them, and none that opens them.
	authentication := filepath.Join(folder, "authentication.key")
	if out, err := user.exec(t.Context(), "backup", "key", authentication, "--lab", "--identity", identity); err != nil {
		t.Fatalf("backup key: %v\n%s", err, out)
	}
	user.env = append(user.env, "BACKUP_AUTHENTICATION_KEY_FILE="+authentication)

	before := writes(t, c)
	if len(before) == 0 {
		t.Fatal("the records show no write of the bootstrap: they cannot prove anything")
	}
	stop := use(t, c)
	for _, place := range []string{folder, "s3://backups/of/k8s"} {
		o := user.run(nil, "backup", "--lab", "--to", place, "--keep", "2")
		if o.exit != 0 {
			t.Fatalf("backup to %s: exit %d\n%s", place, o.exit, o.end())
		}
		if strings.Contains(o.output, "plantedSecretKey") {
			t.Errorf("the store's key is in the output:\n%s", o.output)
		}
		t.Logf("backup to %s in %.1fs, command %d MiB at most", place, o.elapsed.Seconds(), o.maxRSS>>20)
		if o.maxRSS > maxBackupMemory {
			t.Errorf("%d MiB were resident", o.maxRSS>>20)
		}
	}
	if n := stop(); n == 0 {
		t.Error("the cluster was not in use meanwhile")
	} else {
		t.Logf("%d writes by a user meanwhile", n)
	}
	if after := writes(t, c); len(after) != len(before) {
		t.Errorf("backup wrote: %v", after[len(before):])
	}
	for _, place := range []string{folder, "s3://backups/of/k8s"} {
		verifies(t, &user, place, identity, selfManaged)
	}
	cronJobIsTaken(t, &user)
}

// cronJobIsTaken has the cluster's API server look at the printed CronJob and its
// account, strictly, without keeping them.
func cronJobIsTaken(t *testing.T, user *command) {
	t.Helper()
	printed := must(user.exec(t.Context(), "backup", "cronjob", "--to", "s3://backups/of/k8s", "--every", "6h"))(t)
	cluster := must(kube.Connect(must(os.ReadFile(filepath.Join(user.state, "kubeconfig")))(t)))(t)
	strict := &client.CreateOptions{DryRun: []string{metav1.DryRunAll},
		Raw: &metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict}}
	kinds := []string{}
	for _, document := range must(kube.Documents([]byte(printed)))(t) {
		o := must(kube.Parse(document))(t)
		kinds = append(kinds, o.GetKind())
		if err := cluster.Create(t.Context(), o, strict); err != nil {
			t.Errorf("the API server does not take the %s: %v", o.GetKind(), err)
		}
	}
	if !slices.Equal(kinds, []string{"ServiceAccount", "CronJob"}) {
		t.Errorf("printed: %v", kinds)
	}
}

// verifies finds the one backup in a place and verifies it.
func verifies(t *testing.T, c *command, place, identity string, selfManaged bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	out, err := c.exec(ctx, "backup", "list", "--to", place, "--output", "json")
	var list struct {
		Backups []struct{ Name, Cluster string }
	}
	if err != nil || json.Unmarshal([]byte(out), &list) != nil || len(list.Backups) != 1 ||
		list.Backups[0].Cluster != "k8s" {
		t.Fatalf("list %s: %v\n%s", place, err, out)
	}
	file := place + "/" + list.Backups[0].Name
	out, err = c.exec(ctx, "backup", "verify", file, "--identity", identity, "--output", "json")
	var v struct {
		Origin struct{ Sealed, Authenticated string }
		Header struct {
			UID         string
			SelfManaged bool
			Versions    map[string]string
			Etcd        struct {
				Revision int64
				Members  []struct{ Name string }
			}
		}
		Etcd struct {
			Revision int64
			Keys     int
			UID      string
		}
		Counts struct{ Objects, Secrets, Files, Releases, Resources int }
	}
	if err != nil || json.Unmarshal([]byte(out), &v) != nil {
		t.Fatalf("verify %s: %v\n%s", file, err, out)
	}
	h, n := v.Header, v.Counts
	// 1 Cluster, HetznerCluster, control plane, template and health check, and 3 Machines,
	// HCloudMachines and TalosConfigs; the cluster's 4 Secrets, the token's and 3 machines'; 3 servers,
	// a load balancer, a network and a placement group.
	if h.SelfManaged != selfManaged || h.UID == "" || h.UID != v.Etcd.UID || len(h.Etcd.Members) != 3 ||
		v.Etcd.Revision < h.Etcd.Revision || v.Etcd.Keys < 200 ||
		h.Versions["TALOS_VERSION"] == "" || n.Objects < 14 || n.Secrets < 8 || n.Files < 9 || n.Releases != 3 ||
		n.Resources < 6 || v.Origin.Sealed != "keys" || v.Origin.Authenticated != "key" {
		t.Errorf("%s holds %+v", file, v)
	}
	// Without the key it cannot be opened.
	if out, err := c.exec(ctx, "backup", "verify", file); err == nil || !strings.Contains(out, "cannot be opened") {
		t.Errorf("verify %s without a key: %v\n%s", file, err, out)
	}
	if _, err := os.Stat(file); err == nil {
		refusesForged(t, c, file, identity)
	}
}

// use writes to a cluster as another client than the command, until it is stopped. It returns how often.
func use(t *testing.T, c *command) (stop func() int) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(c.state, "kubeconfig"))
	if err != nil {
		t.Fatal(err)
	}
	config, err := clientcmd.RESTConfigFromKubeConfig(data)
	if err != nil {
		t.Fatal(err)
	}
	config.UserAgent = "somebody"
	config.QPS = -1
	cluster, err := client.New(config, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan int)
	go func() {
		n := 0
		defer func() { done <- n }()
		for ctx.Err() == nil {
			o := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprintf("in-use-%d", n%50)},
				Data: map[string]string{"n": fmt.Sprint(n)}}
			var err error
			if n < 50 {
				err = cluster.Create(ctx, o)
			} else {
				err = cluster.Update(ctx, o)
			}
			if err != nil && ctx.Err() == nil {
				t.Errorf("a user's write fails during a backup: %v", err)
				return
			}
			n++
		}
	}()
	return func() int {
		cancel()
		return <-done
	}
}
