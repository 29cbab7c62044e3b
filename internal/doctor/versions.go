package doctor

import (
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/blang/semver/v4"

	"github.com/slipway-k8s/slipway/config"
)

// versions holds the configured versions against each other and against what the programs inside this command can do.
func (d *Doctor) versions(ctx context.Context) Finding {
	c, v := d.cfg, &config.Findings{}
	v.Versions(c)
	if c.ManagementKubeconfig == "" {
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
	if f := ciliumTested(c); f != nil {
		return *f
	}
	return ok("Talos %s runs Kubernetes %s; Cluster API %s manages it, and is managed from %s%s", c.TalosVersion,
		c.KubernetesVersion, c.CAPIVersion, from, flaws(c))
}

// managementVersion says what manages; a finding where that is known not to do.
func (d *Doctor) managementVersion(ctx context.Context) (string, *Finding) {
	path := d.cfg.ManagementKubeconfig
	if path == "" || d.tools.Management.Name() != "kubeconfig" {
		image, _, _ := strings.Cut(d.cfg.KindNodeImage, "@")
		return image, nil
	}
	is, err := d.askManagement(ctx, path)
	if err != nil {
		f := unknown("see the check management", "the Kubernetes version of the cluster of MANAGEMENT_KUBECONFIG cannot be "+
			"read: %v", err)
		return "", &f
	}
	v, err := semver.ParseTolerant(is)
	if err != nil || v.Major != 1 || v.Minor < config.MinManagementMinor || v.Minor > config.MaxManagementMinor {
		f := failed("name another cluster in MANAGEMENT_KUBECONFIG, or leave it to kind",
			"the cluster of MANAGEMENT_KUBECONFIG is Kubernetes %s, and Cluster API v1.%d is managed from v1.%d to v1.%d", is,
			config.ClusterctlMinor, config.MinManagementMinor, config.MaxManagementMinor)
		return "", &f
	}
	return "your cluster of Kubernetes " + is, nil
}

func (d *Doctor) askManagement(ctx context.Context, path string) (string, error) {
	kubeconfig, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	cluster, err := d.tools.Connect(kubeconfig)
	if err != nil {
		return "", err
	}
	return cluster.Version(ctx)
}

// ciliumTests are the Kubernetes minors that Cilium's own documentation says a minor of Cilium is tested with
// (Documentation/network/kubernetes/compatibility.rst at its tags). It calls others neither good nor bad.
func ciliumTests() map[string][2]uint64 { return map[string][2]uint64{"1.18": {30, 33}} }

// ciliumTested is unknown where Cilium's documentation does not say that the two were tested together.
func ciliumTested(c config.Config) *Finding {
	cilium, err := semver.Parse(c.CiliumVersion)
	if err != nil {
		return nil // versions has said so
	}
	kubernetes, err := semver.ParseTolerant(c.KubernetesVersion)
	if err != nil {
		return nil
	}
	series := fmt.Sprintf("%d.%d", cilium.Major, cilium.Minor)
	tested, listed := ciliumTests()[series]
	switch {
	case !listed:
		f := unknown("look into Cilium's documentation, Kubernetes Compatibility", "which Kubernetes Cilium %s is tested "+
			"with is not known to this command", series)
		return &f
	case kubernetes.Minor < tested[0] || kubernetes.Minor > tested[1]:
		f := unknown("choose a Kubernetes or a Cilium that are tested together", "Cilium %s is tested with Kubernetes 1.%d "+
			"to 1.%d, not with %s", series, tested[0], tested[1], c.KubernetesVersion)
		return &f
	}
	return nil
}

// flaws are what is known of versions that work, but not in everything.
func flaws(c config.Config) string {
	if v, err := semver.Parse(c.HCloudCCMVersion); err == nil && v.LT(semver.MustParse("1.35.0")) {
		// It reads server.datacenter, which Hetzner's API dropped on 2026-07-01.
		return fmt.Sprintf("; known: the Hetzner CCM %s labels nodes with no zone and region any more (1.35.0 does)",
			c.HCloudCCMVersion)
	}
	return ""
}
