package rotation

import (
	"context"
	"fmt"
	"strings"

	"github.com/slipway-k8s/slipway/internal/client/kube"
	"github.com/slipway-k8s/slipway/internal/cluster/capi"
)

// Forecast is what a rotation does: `rotate ca --dry-run --output json`.
type Forecast struct {
	Kind    string `json:"kind"` // "rotate-ca-plan", to tell it from events
	Cluster string `json:"cluster"`
	// Resumes tells that the cluster has new authorities already, of a rotation that has not ended.
	Resumes bool     `json:"resumes"`
	Servers []string `json:"servers"` // in the order in which they are changed
	// Restarted are the workloads that are restarted, because their Pods trust the old authority alone.
	Restarted []kube.Workload `json:"restarted"`
	// Unready are those of them that are not ready: they are restarted, and nothing waits for them.
	Unready []kube.Workload `json:"unready,omitempty"`
	// Left are Pods, as "namespace/name", that use the Kubernetes API and have no workload that can be restarted.
	Left []string `json:"left,omitempty"`
}

// Examine reads what a rotation would do, and refuses what it cannot rotate. It changes nothing.
func (p *Plan) Examine(ctx context.Context) (Forecast, error) {
	in := p.in
	f := Forecast{Kind: "rotate-ca-plan", Cluster: in.cfg.ClusterName, Servers: []string{}, Restarted: []kube.Workload{}}
	c, err := in.open(ctx, func(string, ...any) {})
	if err != nil {
		return f, err
	}
	if err := in.refuseOwnAuthorities(ctx, c.manager); err != nil {
		return f, err
	}
	switch _, err := in.readAuthorities(ctx, c.manager); {
	case err == nil:
		f.Resumes = true
	case !kube.Absent(err):
		return f, err
	}
	b, err := in.readBundle(ctx, c.manager)
	if err != nil {
		return f, err
	}
	if _, _, err := b.authorities(); err != nil {
		return f, err
	}
	servers, err := in.listServers(ctx, c)
	if err != nil {
		return f, err
	}
	t, err := in.talos()
	if err != nil {
		return f, err
	}
	for _, s := range servers {
		if _, _, err := readConfig(ctx, t, s); err != nil {
			return f, fmt.Errorf("server %s cannot be changed: %w", s.name, err)
		}
		f.Servers = append(f.Servers, s.name)
	}
	found, err := findClients(ctx, c.workload)
	f.Restarted, f.Unready, f.Left = append(f.Restarted, found.workloads...), found.unready, found.left
	return f, err
}

// refuseOwnAuthorities refuses machine configurations that CABPT does not generate: their authorities are in the
// objects themselves, where a rotation does not change them.
func (in inputs) refuseOwnAuthorities(ctx context.Context, manager *kube.Cluster) error {
	tcp, err := capi.Get(ctx, manager, in.cfg.Namespace, capi.TalosControlPlaneKind, in.cfg.ControlPlaneName())
	if err != nil {
		return err
	}
	if capi.Text(tcp, "spec", "controlPlaneConfig", "init", "generateType") != "" { // the API server adds an empty init
		return fmt.Errorf("%s has a configuration of its own for the first server (spec.controlPlaneConfig.init), with "+
			"which CACPPT does not read the talosconfig that is rotated", kube.Describe(tcp))
	}
	configs, err := capi.List(ctx, manager, in.cfg.Namespace, capi.TalosConfigKind, in.cfg.ClusterName)
	if err != nil {
		return err
	}
	var own []string
	for i := range configs {
		if capi.Text(&configs[i], "spec", "generateType") == "none" {
			own = append(own, configs[i].GetName())
		}
	}
	if len(own) > 0 {
		return fmt.Errorf("the TalosConfigs %s have machine configurations that were written by hand (generateType: none), "+
			"with authorities that a rotation does not change", strings.Join(own, ", "))
	}
	return nil
}

// Lines say what a rotation does, and what it does not.
func (f Forecast) Lines() []string {
	begin := "cluster %s gets new certificate authorities of its Talos API and its Kubernetes API"
	if f.Resumes {
		begin = "the rotation of the certificate authorities of cluster %s has begun already, and is resumed"
	}
	lines := []string{
		fmt.Sprintf(begin, f.Cluster),
		fmt.Sprintf("each of %d servers (%s) is changed three times, one after another, without a reboot: on each its "+
			"kubelet is restarted, and on those of the control plane kube-apiserver, kube-controller-manager and "+
			"kube-scheduler", len(f.Servers), strings.Join(f.Servers, ", ")),
		fmt.Sprintf("restarted: %d workloads, whose Pods trust the old authority alone: %s. From when the first server "+
			"issues with the new authority until its workload is restarted, a Pod cannot make new connections to every "+
			"kube-apiserver; connections between Pods are not concerned", len(f.Restarted), sentence(f.Restarted)),
	}
	if len(f.Unready) > 0 {
		lines = append(lines, "not ready now, and not waited for after their restart: "+sentence(f.Unready))
	}
	for _, pod := range f.Left {
		lines = append(lines, fmt.Sprintf("Pod %s uses the Kubernetes API and has no workload that can be restarted: delete "+
			"or restart it yourself before it needs a new connection", pod))
	}
	return append(lines,
		"not replaced: the authorities of etcd and of the aggregation layer, the key of service account tokens, the key "+
			"that encrypts Secrets in etcd. Tokens of service accounts stay good",
		"afterwards: every kubeconfig and talosconfig that was given away is refused; users who log in by OIDC need a "+
			"kubeconfig with the new authority; backups from before have the old authorities' keys")
}

func sentence(all []kube.Workload) string {
	var names []string
	for _, w := range all {
		names = append(names, w.Namespace+"/"+w.Name)
	}
	return strings.Join(names, ", ")
}
