package doctor

import (
	"context"
	"os"
	"strings"
	"time"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/internal/client/kube"
	"github.com/slipway-k8s/slipway/internal/cluster/connect"
)

// versions holds the configured versions against each other and against what the programs inside this command can do.
func (d *Doctor) versions(ctx context.Context) Finding {
	c, v := d.cfg, &config.Findings{}
	v.Versions(c)
	if c.ManagementProvider() == config.ManagementKind {
		v.KindImage(c)
	}
	if len(v.Errs) > 0 {
		var texts []string
		for _, e := range v.Errs {
			texts = append(texts, e.Error())
		}
		return failed("change the versions", "%s", strings.Join(texts, "; "))
	}
	from, f := d.managementVersion(ctx)
	if f != nil {
		return *f
	}
	untested, remarks := d.remarks()
	known := ""
	if len(remarks) > 0 {
		known = "; known: " + strings.Join(remarks, "; ")
	}
	if len(untested) > 0 {
		return unknown("choose versions that are tested together, as a version set has them (VERSIONS)", "%s%s; %s",
			strings.Join(untested, "; "), known, c.Table().Age(time.Now()))
	}
	return ok("Talos %s runs Kubernetes %s; Cluster API %s manages it, and is managed from %s%s; %s", c.TalosVersion,
		c.KubernetesVersion, c.CAPIVersion, from, known, c.Table().Age(time.Now()))
}

// managementVersion says what manages; a finding where that is known not to do.
func (d *Doctor) managementVersion(ctx context.Context) (string, *Finding) {
	if d.tools.Management.Name() == config.ManagementLocal {
		return "a local management cluster of Kubernetes " + d.cfg.KubernetesVersion, nil
	}
	if d.tools.Management.Name() != "kubeconfig" {
		image, _, _ := strings.Cut(d.cfg.KindNodeImage, "@")
		return image, nil
	}
	is, err := d.askManagement(ctx)
	if err != nil {
		f := unknown("see the check management", "the Kubernetes version of the existing management cluster cannot be read: "+
			"%v", err)
		return "", &f
	}
	remark, err := d.cfg.Table().ManagedFrom(d.cfg.CAPIVersion, is)
	if err != nil {
		f := failed("name another cluster in MANAGEMENT_KUBECONFIG, or leave it to kind",
			"the existing management cluster is Kubernetes %s, and Cluster API %s is not managed from it: %v", is,
			d.cfg.CAPIVersion, err)
		return "", &f
	}
	from := "your cluster of Kubernetes " + is
	if remark != nil {
		f := unknown("choose versions that are tested together", "%s: %s", from, remark.Text)
		return "", &f
	}
	return from, nil
}

// openManagement opens the existing management cluster: the configured one, or the one around this Pod.
func (d *Doctor) openManagement(ctx context.Context) (*kube.Cluster, error) {
	if path := d.cfg.ManagementKubeconfig; path != "" {
		kubeconfig, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		return kube.ConnectTrusted(kubeconfig)
	}
	kubeconfig, err := d.tools.Existing(ctx, d.cfg.ManagementName())
	if err != nil {
		return nil, err
	}
	return connect.Management(d.tools, kubeconfig)
}

func (d *Doctor) askManagement(ctx context.Context) (string, error) {
	cluster, err := d.openManagement(ctx)
	if err != nil {
		return "", err
	}
	return cluster.Version(ctx)
}

// remarks are those on versions that nothing says of whether they go together, and on those that are known to.
func (d *Doctor) remarks() (untested, known []string) {
	for _, r := range d.cfg.Remarks(time.Now()) {
		if r.Untested {
			untested = append(untested, r.String())
		} else {
			known = append(known, r.String())
		}
	}
	return untested, known
}
