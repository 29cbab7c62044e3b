package rotation

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	xcrypto "github.com/siderolabs/crypto/x509"
	"github.com/siderolabs/talos/pkg/machinery/config/types/v1alpha1"

	"github.com/slipway-k8s/slipway/internal/client/kube"
	"github.com/slipway-k8s/slipway/internal/cluster/backup"
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
	// Left is what is not restarted, as "namespace/name": Pods of nothing that would make them again, and workloads
	// that are updated by hand.
	Left []string `json:"left,omitempty"`
}

// Examine reads what a rotation would do, and refuses what it cannot rotate. It changes nothing.
func (p *Plan) Examine(ctx context.Context) (Forecast, error) {
	in := p.in
	f := Forecast{Kind: "rotate-ca-plan", Cluster: in.cfg.ClusterName, Servers: []string{},
		Restarted: []kube.Workload{}}
	c, err := in.open(ctx, func(string, ...any) {})
	if err != nil {
		return f, err
	}
	if err := in.refuseOwnAuthorities(ctx, c.manager); err != nil {
		return f, err
	}
	b, err := in.readBundle(ctx, c.manager)
	if err != nil {
		return f, err
	}
	talosNow, kubernetesNow, err := b.authorities()
	if err != nil {
		return f, err
	}
	known := knownAuthorities{talos: [][]byte{talosNow.Crt}, kubernetes: [][]byte{kubernetesNow.Crt}}
	switch a, err := in.readAuthorities(ctx, c.manager); {
	case err == nil:
		f.Resumes = true
		known.talos = [][]byte{a.talos.old, a.talos.new.Crt}
		known.kubernetes = [][]byte{a.kubernetes.old, a.kubernetes.new.Crt}
	case !kube.Absent(err):
		return f, err
	}
	servers, err := in.listServers(ctx, func(string, ...any) {}, c)
	if err != nil {
		return f, err
	}
	for _, s := range servers {
		f.Servers = append(f.Servers, s.name)
	}
	if err := in.examineServers(ctx, servers, known); err != nil {
		return f, err
	}
	found, err := findClients(ctx, c.workload)
	f.Restarted, f.Unready, f.Left = append(f.Restarted, found.workloads...), found.unready, found.left
	return f, err
}

// knownAuthorities are the certificates that a server may have.
type knownAuthorities struct{ talos, kubernetes [][]byte }

// examineServers reads the machine configuration of every server, and refuses one with an authority that Cluster API
// does not know: the authorities were replaced by other means (talosctl rotate-ca), or others are accepted beside them.
// A rotation would remove the one that Cluster API knows, and leave the other one.
func (in inputs) examineServers(ctx context.Context, servers []server, known knownAuthorities) error {
	t, err := in.talos()
	if err != nil {
		return err
	}
	refusals := make([]error, len(servers))
	var asking sync.WaitGroup
	for i, s := range servers {
		asking.Go(func() {
			is, _, err := readConfig(ctx, t, s)
			if err != nil {
				refusals[i] = fmt.Errorf("server %s cannot be changed: %w", s.name, err)
				return
			}
			if field := known.foreign(is.RawV1Alpha1()); field != "" {
				refusals[i] = fmt.Errorf("server %s has another authority in %s than Cluster API has in Secret "+
					"%s/%s%s: first write the server's authorities there, or remove what is accepted beside them",
					s.name, field, in.cfg.Namespace, in.cfg.ClusterName, backup.TalosSecretSuffix)
			}
		})
	}
	asking.Wait()
	return errors.Join(refusals...)
}

// foreign names a field of a machine configuration with an authority that is not known; empty: there is none.
func (k knownAuthorities) foreign(c *v1alpha1.Config) string {
	if c == nil || c.MachineConfig == nil || c.ClusterConfig == nil {
		return "its machine configuration, which has another form,"
	}
	in := func(known [][]byte, cert []byte) bool {
		return slices.ContainsFunc(known, func(k []byte) bool { return same(k, cert) })
	}
	for _, one := range []struct {
		field    string
		issuing  *pair
		accepted []*xcrypto.PEMEncodedCertificate
		known    [][]byte
	}{
		{"machine", c.MachineConfig.MachineCA, c.MachineConfig.MachineAcceptedCAs, k.talos},
		{"cluster", c.ClusterConfig.ClusterCA, c.ClusterConfig.ClusterAcceptedCAs, k.kubernetes},
	} {
		if one.issuing == nil || !in(one.known, one.issuing.Crt) {
			return one.field + ".ca"
		}
		for _, accepted := range one.accepted {
			if !in(one.known, accepted.Crt) {
				return one.field + ".acceptedCAs"
			}
		}
	}
	return ""
}

// refuseOwnAuthorities refuses machine configurations that CABPT does not generate: their authorities are in the
// objects themselves, where a rotation does not change them.
func (in inputs) refuseOwnAuthorities(ctx context.Context, manager *kube.Cluster) error {
	tcp, err := capi.Get(ctx, manager, in.cfg.Namespace, capi.TalosControlPlaneKind, in.cfg.ControlPlaneName())
	if err != nil {
		return err
	}
	if capi.Text(tcp, "spec", "controlPlaneConfig", "init", "generateType") != "" { // the API server adds an empty init
		return fmt.Errorf("%s has a configuration of its own for the first server (spec.controlPlaneConfig.init), "+
			"with which CACPPT does not read the talosconfig that is rotated", kube.Describe(tcp))
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
		return fmt.Errorf("the TalosConfigs %s have machine configurations that were written by hand (generateType: "+
			"none), with authorities that a rotation does not change", strings.Join(own, ", "))
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
		"Cluster API is paused until the end: it replaces no server and makes none",
		fmt.Sprintf("each of %d servers (%s) is changed four times, one after another, without a reboot: three times "+
			"its kubelet is restarted, and on those of the control plane kube-apiserver, kube-controller-manager and "+
			"kube-scheduler", len(f.Servers), strings.Join(f.Servers, ", ")),
		fmt.Sprintf("restarted: %d workloads, whose Pods trust the old authority alone: %s. From when the first "+
			"server issues with the new authority until its workload is restarted, a Pod cannot make new connections "+
			"to every kube-apiserver; connections between Pods are not concerned", len(f.Restarted),
			sentence(f.Restarted)),
	}
	if len(f.Unready) > 0 {
		lines = append(lines, "not ready now, and not waited for after their restart: "+sentence(f.Unready))
	}
	if len(f.Left) > 0 {
		lines = append(lines, "not restarted, as nothing would make it again, or only by hand: "+
			strings.Join(f.Left, ", ")+". Restart it yourself, after the step restart: it uses the Kubernetes API, "+
			"and fails at its next new connection")
	}
	return append(lines,
		"not replaced: the authorities of etcd and of the aggregation layer, the key of service account tokens, the "+
			"key that encrypts Secrets in etcd. Tokens of service accounts stay good",
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
