package drill

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/client/kube"
	"github.com/slipway-k8s/slipway/internal/cluster/backup"
	"github.com/slipway-k8s/slipway/internal/cluster/capi"
	"github.com/slipway-k8s/slipway/internal/cluster/connect"
	"github.com/slipway-k8s/slipway/internal/cluster/etcdview"
	"github.com/slipway-k8s/slipway/internal/cluster/rollout"
	"github.com/slipway-k8s/slipway/internal/cluster/wait"
	"github.com/slipway-k8s/slipway/platform"
)

// compareWithin is how long a restored cluster may take until it is as it was: everything has been waited for by then,
// so that only what moves by itself, an election say, is left.
const compareWithin = time.Minute

// Comparison is one thing about a restored cluster that is to be as it was.
type Comparison struct {
	What string `json:"what"`
	Same bool   `json:"same"`
	Seen string `json:"seen"` // by what that was seen, or in what it differs
}

// question asks one thing of a restored cluster. differs is empty where it is as it was.
type question struct {
	what string
	ask  func(context.Context) (seen, differs string, err error)
}

// comparer asks a restored cluster.
type comparer struct {
	rehearsed
	cluster *kube.Cluster
}

// compare holds the restored cluster against the marks.
func (d rehearsed) compare(ctx context.Context, say flow.Say, m *Marks) ([]Comparison, error) {
	return d.compareWith(ctx, say, func(c comparer) []question {
		return append([]question{
			{"the same cluster, by the UID of kube-system", c.sameUID(m.UID)},
			{"the same authority signs, at the same address",
				func(context.Context) (string, string, error) { return c.sameAuthority(m.CA, m.Endpoint) }},
			{"the data of before the backup are there",
				func(ctx context.Context) (string, string, error) { return c.records(ctx, m) }},
			{"Secrets can be read", func(ctx context.Context) (string, string, error) { return c.secret(ctx, m) }},
			{"a service account's token of before the loss is taken",
				func(ctx context.Context) (string, string, error) { return c.token(ctx, m) }},
		}, c.whole(m.Servers)...)
	})
}

// compareBackup holds a restored cluster against its backup, which knows less of it than marks do.
func (d rehearsed) compareBackup(ctx context.Context, say flow.Say, source backup.Cluster) ([]Comparison, error) {
	return d.compareWith(ctx, say, func(c comparer) []question {
		h := source.Contents.Header
		questions := []question{
			{"the same cluster, by the UID of kube-system", c.sameUID(h.UID)},
			{"etcd holds at least what it held", func(ctx context.Context) (string, string, error) {
				is, err := etcdview.Revision(ctx, c.cluster)
				seen := fmt.Sprintf("it is at revision %d, and was at %d or later", is, h.Etcd.Revision)
				if err == nil && is < h.Etcd.Revision {
					return "", seen, nil
				}
				return seen, "", err
			}},
			{"the same authority signs", func(context.Context) (string, string, error) { return c.authorityOf(source) }},
		}
		return append(questions, c.whole(nil)...)
	})
}

// compareWith asks until nothing differs, or the time is up: what differs then is reported, and is no error.
func (d rehearsed) compareWith(ctx context.Context, say flow.Say,
	questions func(comparer) []question) ([]Comparison, error) {
	cluster, err := connect.Cluster(d.tools, platform.Kubeconfig)
	if err != nil {
		return nil, err
	}
	asked := questions(comparer{d, cluster})
	var found []Comparison
	w := wait.Wait{What: "the cluster to be as it was", Within: compareWithin, Each: compareWithin}
	err = w.Until(ctx, say, func(ctx context.Context) (string, error) {
		var all []Comparison
		var differs []string
		for _, q := range asked {
			c := q.answer(ctx)
			c.Seen = d.hide.Text(c.Seen)
			all = append(all, c)
			if !c.Same {
				differs = append(differs, c.What+": "+c.Seen)
			}
		}
		if found == nil || ctx.Err() == nil { // a look that the deadline cuts off tells less than the one before
			found = all
		}
		return strings.Join(differs, "; "), nil
	})
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if len(found) == 0 {
		return nil, err
	}
	return found, nil
}

func (q question) answer(ctx context.Context) Comparison {
	ctx, cancel := context.WithTimeout(ctx, wait.LookWithin)
	defer cancel()
	seen, differs, err := q.ask(ctx)
	switch {
	case err != nil:
		return Comparison{What: q.what, Seen: "it cannot be told: " + err.Error()}
	case differs != "":
		return Comparison{What: q.what, Seen: differs}
	}
	return Comparison{What: q.what, Same: true, Seen: seen}
}

func (c comparer) sameUID(want string) func(context.Context) (string, string, error) {
	return func(ctx context.Context) (string, string, error) {
		is, err := c.cluster.UID(ctx)
		if err == nil && is != want {
			return "", fmt.Sprintf("%s, it was %s", is, want), nil
		}
		return is, "", err
	}
}

func (c comparer) sameAuthority(ca, endpoint string) (seen, differs string, err error) {
	isCA, isEndpoint, err := authority(c.tools)
	switch {
	case err != nil:
		return "", "", err
	case isCA != ca:
		return "", "the API server's certificate is signed by another authority", nil
	case isEndpoint != endpoint:
		return "", fmt.Sprintf("the API is at %s, it was at %s", isEndpoint, endpoint), nil
	}
	return isEndpoint, "", nil
}

// authorityOf compares with the Secret of the authority in a backup. A lab has other addresses than whatever it was
// taken of.
func (c comparer) authorityOf(from backup.Cluster) (seen, differs string, err error) {
	secret := from.Secret(c.cfg.ClusterName + "-ca")
	if secret == nil {
		return "the backup has no record of it besides the keys", "", nil
	}
	want, err := backup.SecretData(secret, "tls.crt")
	if err != nil {
		return "", "", err
	}
	is, endpoint, err := authority(c.tools)
	if err == nil && strings.TrimSpace(is) != strings.TrimSpace(string(want)) {
		return "", "the API server's certificate is signed by another authority", nil
	}
	return endpoint, "", err
}

func (c comparer) records(ctx context.Context, m *Marks) (seen, differs string, err error) {
	there, err := drillData(ctx, c.cluster)
	if err != nil {
		return "", "", err
	}
	var wrong []string
	for i := range drillRecords {
		if name := recordName(i); there[name]["word"] != m.word.Reveal() {
			wrong = append(wrong, name)
		}
	}
	if len(wrong) > 0 {
		return "", fmt.Sprintf("%d of %d ConfigMaps are missing or hold something else: %s", len(wrong), drillRecords,
			strings.Join(wrong, ", ")), nil
	}
	return fmt.Sprintf("%d of %d ConfigMaps, each with what was written", drillRecords, drillRecords), "", nil
}

// secret reads a Secret, which etcd holds encrypted with the lost cluster's key.
func (c comparer) secret(ctx context.Context, m *Marks) (seen, differs string, err error) {
	s := &corev1.Secret{}
	if err := c.cluster.Get(ctx, client.ObjectKey{Namespace: drillNamespace, Name: drillSecret}, s); err != nil {
		return "", "", err
	}
	if string(s.Data["word"]) != m.word.Reveal() {
		return "", "it holds something else than was written", nil
	}
	return "it holds what was written", "", nil
}

// token asks the cluster who the bearer of the old token is.
func (c comparer) token(ctx context.Context, m *Marks) (seen, differs string, err error) {
	kubeconfig, err := clientcmd.Write(clientcmdapi.Config{
		Clusters: map[string]*clientcmdapi.Cluster{"drill": {Server: m.Endpoint,
			CertificateAuthorityData: []byte(m.CA)}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{"drill": {Token: m.token.Reveal()}},
		Contexts:       map[string]*clientcmdapi.Context{"drill": {Cluster: "drill", AuthInfo: "drill"}},
		CurrentContext: "drill",
	})
	if err != nil {
		return "", "", err
	}
	visitor, err := c.tools.Connect(kubeconfig)
	if err != nil {
		return "", "", err
	}
	review := &unstructured.Unstructured{Object: map[string]any{}}
	review.SetGroupVersionKind(schema.GroupVersionKind{Group: "authentication.k8s.io", Version: "v1",
		Kind: "SelfSubjectReview"})
	if err := visitor.Create(ctx, review); err != nil {
		return "", "", err
	}
	want := "system:serviceaccount:" + drillNamespace + ":" + drillAccount
	if is := capi.Text(review, "status", "userInfo", "username"); is != want {
		return "", fmt.Sprintf("it is %q's, it was issued for %s", is, want), nil
	}
	return want, "", nil
}

// whole asks whether the cluster is complete and nothing of the lost servers is left.
func (c comparer) whole(lost []string) []question {
	return []question{
		{"servers, Nodes and Machines are the same, every Node Ready, none stale",
			func(ctx context.Context) (string, string, error) { return c.nodes(ctx, lost) }},
		{"etcd's members are the servers, all voting", c.members},
		{"the cluster manages itself", c.managesItself},
	}
}

func (c comparer) nodes(ctx context.Context, lost []string) (seen, differs string, err error) {
	r, err := rollout.Read(ctx, c.cfg, c.tools, c.cluster, c.cluster)
	if err != nil {
		return "", "", err
	}
	wrong := r.Missing(c.cfg.NetworkCIDR)
	var names []string
	for _, s := range r.Servers {
		names = append(names, s.Name)
		if slices.Contains(lost, s.Name) {
			wrong = append(wrong, "server "+s.Name+" was lost and is there")
		}
	}
	return strings.Join(names, ", "), strings.Join(wrong, "; "), nil
}

func (c comparer) members(ctx context.Context) (seen, differs string, err error) {
	r, err := rollout.Read(ctx, c.cfg, c.tools, c.cluster, c.cluster)
	if err != nil {
		return "", "", err
	}
	view, err := etcdview.Ask(ctx, c.cfg, c.tools, c.cluster, "")
	if err != nil {
		return "", "", err
	}
	var names []string
	for _, m := range capi.ControlPlaneMachines(r.Machines) {
		names = append(names, capi.Text(&m, "spec", "infrastructureRef", "name"))
	}
	return strings.Join(view.Voters(), ", "), view.Differs(names), nil
}

func (c comparer) managesItself(ctx context.Context) (seen, differs string, err error) {
	cluster, err := connect.FindCluster(ctx, c.cfg, c.cluster)
	switch {
	case err != nil:
		return "", "", err
	case cluster == nil:
		return "", "it does not hold its Cluster object", nil
	case connect.Paused(cluster):
		return "", "its Cluster object is paused", nil
	}
	return "it holds its Cluster object, which is not paused", "", nil
}
