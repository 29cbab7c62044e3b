package test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

// fleetCommand works on a fleet in a lab.
type fleetCommand struct {
	*command
	file  string
	pulls string // folder of the states that were read
}

func newFleet(t *testing.T, content string) *fleetCommand {
	t.Helper()
	c := newCommand(t)
	f := &fleetCommand{command: c, file: filepath.Join(t.TempDir(), "fleet.yaml"), pulls: t.TempDir()}
	f.write(content)
	return f
}

func (f *fleetCommand) write(content string) {
	f.t.Helper()
	if err := os.WriteFile(f.file, []byte(content), 0o600); err != nil {
		f.t.Fatal(err)
	}
}

// fleet runs a command of fleet, asserts its exit code and returns its standard output, or all that it has said where it is
// to fail.
func (f *fleetCommand) fleet(exit int, args ...string) string {
	f.t.Helper()
	ctx, cancel := context.WithTimeout(f.t.Context(), 15*time.Minute)
	defer cancel()
	cmd := f.cmd(ctx, append([]string{"fleet", args[0], f.file, "--lab", "--yes"}, args[1:]...)...)
	var out, said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &said
	err := cmd.Run()
	all := out.String() + said.String()
	if is := cmd.ProcessState.ExitCode(); is != exit {
		f.t.Errorf("fleet %v: exit %d, not %d (%v)\n%s", args, is, exit, err, all)
	}
	if strings.Contains(all, plantedToken) || strings.Contains(all, "AGE-SECRET-KEY") {
		f.t.Errorf("fleet %v printed a secret", args)
	}
	if exit != 0 {
		return all
	}
	return out.String()
}

// fleetCluster is a cluster of `fleet status --output json`.
type fleetCluster struct {
	Cluster  string    `json:"cluster"`
	Job      string    `json:"job"`
	Phase    string    `json:"phase"`
	Attempts int       `json:"attempts"`
	Began    time.Time `json:"began"`
	Message  string    `json:"message"`
}

func (f *fleetCommand) status() map[string]fleetCluster {
	f.t.Helper()
	var s struct {
		Status []fleetCluster `json:"status"`
	}
	if err := json.Unmarshal([]byte(f.fleet(0, "status", "--output", "json")), &s); err != nil {
		f.t.Fatal(err)
	}
	all := map[string]fleetCluster{}
	for _, one := range s.Status {
		all[one.Cluster] = one
	}
	return all
}

// phases are the phases of clusters, in the order of their names here.
func (f *fleetCommand) phases(names ...string) string {
	f.t.Helper()
	var words []string
	all := f.status()
	for _, name := range names {
		words = append(words, name+" "+all[name].Phase)
	}
	return strings.Join(words, ", ")
}

// opened is a cluster of the fleet, by the kubeconfig in its state, which another machine would read as this one does.
func (f *fleetCommand) opened(cluster string) *command {
	f.t.Helper()
	c := *f.command
	c.state = filepath.Join(f.pulls, cluster)
	out, err := c.exec(f.t.Context(), "state", "pull", "--force", "STATE=k8s://slipway-"+cluster, "CLUSTER_NAME="+cluster,
		"NAMESPACE="+cluster, "STATE_KUBECONFIG="+filepath.Join(f.state, "management.kubeconfig"),
		"STATE_IDENTITY_FILE="+filepath.Join(f.state, "state-identity.txt"))
	if err != nil {
		f.t.Fatalf("read the state of cluster %s: %v\n%s", cluster, err, out)
	}
	return &c
}

// addresses are those of a cluster's only Node, by the Node's UID.
func (f *fleetCommand) addresses(cluster string) (uid string, addresses []string) {
	f.t.Helper()
	list, err := workload(f.t, f.opened(cluster)).CoreV1().Nodes().List(f.t.Context(), metav1.ListOptions{})
	if err != nil || len(list.Items) != 1 {
		f.t.Fatalf("cluster %s has %d Nodes, %v", cluster, len(list.Items), err)
	}
	for _, a := range list.Items[0].Status.Addresses {
		addresses = append(addresses, a.Address)
	}
	return string(list.Items[0].UID), addresses
}

// checkReach asks the management cluster's API server what the Jobs of the clusters may do in it.
func (f *fleetCommand) checkReach() {
	f.t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", filepath.Join(f.state, "management.kubeconfig"))
	if err != nil {
		f.t.Fatal(err)
	}
	management, err := kubernetes.NewForConfig(config)
	if err != nil {
		f.t.Fatal(err)
	}
	const everything = "*"
	for _, tt := range []struct {
		account, verb, group, resource, namespace, name string
		allowed                                         bool
	}{
		{"slipway-cluster-one", "update", "", "secrets", "slipway-one", "", true},
		{"slipway-cluster-one", "create", "cluster.x-k8s.io", "clusters", "one", "", true},
		{"slipway-cluster-one", "get", "", "secrets", "slipway", "", false},
		{"slipway-cluster-one", "list", "", "secrets", "slipway-three", "", false},
		{"slipway-cluster-one", "get", "", "secrets", "three", "", false},
		{"slipway-cluster-one", "list", "", "secrets", "", "", false},
		{"slipway-cluster-one", "get", "", "secrets", "kube-system", "", false},
		{"slipway-cluster-one", "patch", "cluster.x-k8s.io", "clusters", "three", "", false},
		{"slipway-cluster-one", "create", "", "pods", "slipway", "", false},
		{"slipway-cluster-one", "create", "", "pods", "one", "", false},
		{"slipway-cluster-one", "create", "", "serviceaccounts/token", "slipway", "", false},
		{"slipway-cluster-one", "create", "batch", "jobs", "slipway", "", false},
		{"slipway-cluster-one", "patch", "batch", "jobs", "slipway", "", false},
		{"slipway-cluster-one", "create", "rbac.authorization.k8s.io", "rolebindings", "one", "", false},
		{"slipway-cluster-one", "create", "", "namespaces", "", "", false},
		{"slipway-cluster-one", "delete", "", "namespaces", "", "three", false},
		{"slipway-cluster-one", "delete", "", "namespaces", "", "one", true},
		{"slipway-cluster-one", "update", "apiextensions.k8s.io", "customresourcedefinitions", "", "", false},
		{"slipway-cluster-one", "impersonate", "", "users", "", "", false},
		{"slipway-advance", "patch", "batch", "jobs", "slipway", "", true},
		{"slipway-advance", "create", "batch", "jobs", "slipway", "", false},
		{"slipway-advance", "get", "", "secrets", "slipway", "", false},
		{"slipway", everything, everything, everything, "", "", true},
	} {
		resource, subresource, _ := strings.Cut(tt.resource, "/")
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User:   "system:serviceaccount:slipway:" + tt.account,
			Groups: []string{"system:serviceaccounts", "system:serviceaccounts:slipway", "system:authenticated"},
			ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: tt.namespace, Verb: tt.verb, Group: tt.group,
				Resource: resource, Subresource: subresource, Name: tt.name}}}
		is, err := management.AuthorizationV1().SubjectAccessReviews().Create(f.t.Context(), review, metav1.CreateOptions{})
		if err != nil || is.Status.Allowed != tt.allowed {
			f.t.Errorf("%s may %s %s %s in namespace %q: %t, want %t, %v", tt.account, tt.verb, tt.resource, tt.name, tt.namespace,
				is.Status.Allowed, tt.allowed, err)
		}
	}
}

// TestFleet applies a fleet of three clusters as Jobs in a management cluster that goes on managing them. One fails for
// good, and is mended; one is destroyed, and the others are not touched.
func TestFleet(t *testing.T) {
	const file = `name: demo
pivot: false
maxFailures: 1
retries: 0
canary: [one]
defaults:
  controlPlaneReplicas: 1
clusters:
  - name: one
  - name: two
    serverType: %s
  - name: three
    location: fsn1
`
	f := newFleet(t, fmt.Sprintf(file, "cx99"))
	if out := f.fleet(1, "apply"); !strings.Contains(out, `cx99`) {
		t.Errorf("it does not say why cluster two failed:\n%s", out)
	}
	if is := f.phases("one", "two", "three"); is != "one done, two failed, three done" {
		t.Fatal(is)
	}
	owner := map[string]string{}
	for _, cluster := range []string{"one", "three"} {
		_, addresses := f.addresses(cluster)
		for _, address := range addresses {
			if other := owner[address]; other != "" && other != cluster {
				t.Errorf("the clusters %s and %s have the address %s", cluster, other, address)
			}
			owner[address] = cluster
		}
	}
	was := f.status()
	if !was["three"].Began.After(was["one"].Began) {
		t.Errorf("the canary began at %s, cluster three at %s", was["one"].Began, was["three"].Began)
	}

	f.write(fmt.Sprintf(file, "cx33"))
	f.fleet(0, "apply")
	is := f.status()
	if is["two"].Phase != "done" || is["one"] != was["one"] || is["three"] != was["three"] {
		t.Errorf("after cluster two was mended: %+v\nbefore: %+v", is, was)
	}

	f.checkReach()

	node, _ := f.addresses("three")
	f.fleet(0, "destroy", "--cluster", "one")
	if still, _ := f.addresses("three"); still != node {
		t.Errorf("cluster three has the Node %s, before another one was destroyed %s", still, node)
	}
	var plan struct {
		Changes  bool `json:"changes"`
		Clusters []struct {
			Cluster string `json:"cluster"`
			Steps   []struct {
				Step  string `json:"step"`
				Would string `json:"would"`
			} `json:"steps"`
		} `json:"clusters"`
	}
	out := f.fleet(0, "plan", "--cluster", "two,three", "--output", "json")
	if err := json.Unmarshal([]byte(out), &plan); err != nil || len(plan.Clusters) != 2 || plan.Changes {
		t.Errorf("the plan of clusters that are as configured: %v\n%s", err, out)
	}
}

// TestFleetOfSix kills the lab, and with it the management cluster's node and all runs on it, in the middle of a fleet.
// It runs with ALL_MOMENTS set.
func TestFleetOfSix(t *testing.T) {
	if os.Getenv(crashVariable) == "" {
		t.Skipf("%s is not set", crashVariable)
	}
	f := newFleet(t, `name: six
pivot: false
maxParallel: 2
maxFailures: 1
retries: 2
canary: [alpha]
defaults:
  controlPlaneReplicas: 1
clusters:
  - name: alpha
  - name: beta
    location: fsn1
  - name: gamma
  - name: delta
    serverType: cx99
  - name: epsilon
  - name: zeta
`)
	ended := make(chan string, 1)
	go func() { ended <- f.fleet(1, "apply") }()
	eventually(t, "two clusters at work after the canary", 5*time.Minute, func(ctx context.Context) string {
		select {
		case said := <-ended:
			t.Fatalf("fleet apply has ended before:\n%s", said)
		default:
		}
		out, err := f.exec(ctx, "fleet", "status", f.file, "--lab", "--output", "json")
		if err != nil {
			return out
		}
		if n := strings.Count(out, `"phase": "running"`); n < 2 || !strings.Contains(out, `"phase": "done"`) {
			return fmt.Sprintf("%d are running", n)
		}
		return ""
	})
	killLab(t, f.command)
	if out, err := f.exec(t.Context(), "lab", "up"); err != nil {
		t.Fatalf("lab up: %v\n%s", err, out)
	}
	said := <-ended
	names := []string{"alpha", "beta", "gamma", "delta", "epsilon", "zeta"}
	want := "alpha done, beta done, gamma done, delta failed, epsilon done, zeta done"
	if is := f.phases(names...); is != want {
		t.Errorf("%s, not %s\n%s", is, want, said)
	}
	all, again := f.status(), 0
	for _, c := range all {
		if c.Phase == "done" && c.Attempts > 1 {
			again++
		}
	}
	if again == 0 || all["delta"].Attempts != 3 {
		t.Errorf("%d clusters resumed after the lab was killed, delta has had %d attempts", again, all["delta"].Attempts)
	}
}

// killLab ends a lab as a machine that loses its power does.
func killLab(t *testing.T, c *command) {
	t.Helper()
	held, err := os.ReadFile(filepath.Join(c.state, "lab", "lab.lock"))
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(held)))
	if err != nil {
		t.Fatalf("the lab's process is %q: %v", held, err)
	}
	process, err := os.FindProcess(pid)
	if err != nil {
		t.Fatal(err)
	}
	if err := process.Kill(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the lab to be gone", time.Minute, func(ctx context.Context) string {
		if err := process.Signal(syscall.Signal(0)); err == nil {
			return "process " + strconv.Itoa(pid) + " is still there"
		}
		return ""
	})
}
