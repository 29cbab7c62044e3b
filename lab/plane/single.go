package plane

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/slipway-k8s/slipway/lab/pki"
	"github.com/slipway-k8s/slipway/lab/proc"
)

// SingleConfig configures a control plane with one etcd member and its own authorities.
type SingleConfig struct {
	Cluster      string
	Bin          string
	Kubernetes   string // folder of the Kubernetes programs; empty: Bin
	Dir          string // everything that the cluster is: keys, certificates, etcd's data; 0700
	LogDir       string
	Address      string
	Port         string // of the apiserver; empty: APIPort
	SANs         []string
	Durable      bool // as EtcdConfig has it
	ServiceCIDR  string
	EgressSocket string
	AuditLog     string
	Labels       map[string]string
}

// Single is a control plane with its etcd.
type Single struct {
	*Plane
	etcd *Etcd
}

// StartSingle starts etcd and the control plane and returns when the apiserver is ready. Started again on its folder,
// it is the same cluster. When it fails, nothing of it is left running.
func StartSingle(ctx context.Context, super *proc.Supervisor, cfg SingleConfig) (*Single, error) {
	if err := os.MkdirAll(cfg.LogDir, 0o700); err != nil {
		return nil, err
	}
	keys, err := ensureKeys(filepath.Join(cfg.Dir, "pki"), cfg.Cluster)
	if err != nil {
		return nil, fmt.Errorf("keys of cluster %s: %w", cfg.Cluster, err)
	}
	member, err := keys.etcd.Issue(pki.Request{CommonName: cfg.Cluster, Hosts: []string{cfg.Address}})
	if err != nil {
		return nil, err
	}
	client, err := keys.etcd.Issue(pki.Request{CommonName: "kube-apiserver-etcd-client"})
	if err != nil {
		return nil, err
	}
	etcd, err := StartEtcd(super, EtcdConfig{
		Name: cfg.Cluster, Bin: cfg.Bin, Dir: filepath.Join(cfg.Dir, "etcd"), LogFile: filepath.Join(cfg.LogDir, "etcd.log"),
		Address: cfg.Address, CA: keys.etcd.Cert(), Pair: member, Durable: cfg.Durable, Labels: cfg.Labels,
	})
	if err != nil {
		return nil, err
	}
	fail := func(err error) (*Single, error) {
		return nil, errors.Join(err, etcd.Stop(context.WithoutCancel(ctx)))
	}
	if err := etcd.Ready(ctx); err != nil {
		return fail(err)
	}
	p, err := Start(ctx, super, Config{
		Cluster: cfg.Cluster, Bin: cmp.Or(cfg.Kubernetes, cfg.Bin), Dir: filepath.Join(cfg.Dir, "plane"), LogDir: cfg.LogDir,
		Address: cfg.Address, Port: cfg.Port, SANs: cfg.SANs,
		Etcd: EtcdClient{Endpoints: []string{etcd.cfg.ClientURL()}, CA: keys.etcd.Cert(), Pair: client},
		CA:   keys.cluster, Aggregator: keys.aggregator, ServiceAccountKey: keys.serviceAccount,
		ServiceCIDR: cfg.ServiceCIDR, EgressSocket: cfg.EgressSocket, AuditLog: cfg.AuditLog, Labels: cfg.Labels,
	})
	if err != nil {
		return fail(err)
	}
	return &Single{Plane: p, etcd: etcd}, nil
}

// Stop ends the control plane, then etcd.
func (s *Single) Stop(ctx context.Context) error {
	return errors.Join(s.Plane.Stop(ctx), s.etcd.Stop(ctx))
}

// keys are the keys that must survive a restart of the cluster.
type keys struct {
	cluster, etcd, aggregator *pki.CA
	serviceAccount            []byte
}

func ensureKeys(dir, cluster string) (k keys, err error) {
	for name, ca := range map[string]**pki.CA{"ca": &k.cluster, "etcd-ca": &k.etcd, "front-proxy-ca": &k.aggregator} {
		if *ca, err = pki.EnsureCA(dir, name, cluster+" "+name); err != nil {
			return keys{}, err
		}
	}
	k.serviceAccount, err = pki.EnsureServiceAccountKey(filepath.Join(dir, "sa.key"))
	return k, err
}
