package destroy

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/internal/client/hetzner"
	"github.com/slipway-k8s/slipway/internal/client/kube"
	"github.com/slipway-k8s/slipway/internal/cluster/capi"
	"github.com/slipway-k8s/slipway/internal/cluster/connect"
	"github.com/slipway-k8s/slipway/internal/cluster/records"
	"github.com/slipway-k8s/slipway/internal/cluster/situation"
	"github.com/slipway-k8s/slipway/platform"
)

// refuseOtherProject refuses where the token's project is not the one in which the cluster whose objects a manager
// holds has its servers. There nothing of it is found, and it would be called gone while it lives; and the manager,
// with the token that it was given, would delete servers that no list showed to the operator.
//
// A destroy that was killed resumes: the reservation of the name is deleted last, so something is there until then. So
// does one after everything was deleted by hand, where the manager works with this very token.
func (d Destroyer) refuseOtherProject(ctx context.Context, manager *kube.Cluster) error {
	asking, cancel := context.WithTimeout(ctx, connect.AliveWithin)
	defer cancel()
	machines, unseen := capi.List(asking, manager, d.cfg.Namespace, capi.HCloudMachineKind, d.cfg.ClusterName)
	if kube.Absent(unseen) || unseen == nil && !slices.ContainsFunc(machines, capi.HasHCloudServer) {
		return nil
	}
	servers, err := hetzner.Servers(ctx, d.tools.Hetzner, d.cfg.ClusterName)
	if err != nil {
		return err
	}
	found := "others of that name, " + hetzner.ServerNames(servers)
	switch {
	case len(servers) == 0:
		if there, err := d.hasAnything(ctx); err != nil || there {
			return err
		}
		found = "nothing of it"
	case unseen != nil, slices.ContainsFunc(servers, func(s hetzner.Server) bool { return capi.HasServer(s, machines) }):
		return nil
	default:
		// A restored cluster holds the objects of its backup, of servers that are gone, until the restore has replaced them.
		if restoring, err := records.ReadRestore(d.tools.Files); err != nil || restoring != nil && restoring.Ended.IsZero() {
			return err
		}
	}
	if worksWithToken(asking, d.cfg, d.tools, manager) {
		return nil
	}
	if unseen != nil {
		return fmt.Errorf("find out whether the token is of the project of cluster %s, of which nothing is there: %w",
			d.cfg.ClusterName, unseen)
	}
	var names []string
	for _, m := range machines {
		names = append(names, m.GetName())
	}
	return fmt.Errorf("cluster %s has servers %s, and the token's project has %s: the token is of another project. "+
		"Nothing was changed: run destroy with the token of the cluster's project; where that project is no more, delete "+
		"management cluster %s and the state folder by hand",
		d.cfg.ClusterName, strings.Join(names, ", "), found, d.cfg.ManagementName())
}

// destroyedFile records that nothing of the cluster is left at Hetzner, with a digest of the kubeconfig: another
// cluster that the folder opens later is not meant. A destroy that was killed between that and its end resumes by it.
const destroyedFile = "destroy.swept"

func (d Destroyer) recordSwept() error {
	kubeconfig, err := d.tools.Files.Read(platform.Kubeconfig)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return d.tools.Files.Write(destroyedFile, fmt.Appendf(nil, "%x\n", sha256.Sum256(kubeconfig)))
}

// swept reports whether the cluster of a kubeconfig was recorded so.
func (d Destroyer) swept(kubeconfig []byte) bool {
	recorded, err := d.tools.Files.Read(destroyedFile)
	return err == nil && string(recorded) == fmt.Sprintf("%x\n", sha256.Sum256(kubeconfig))
}

// refuseUnseen refuses where nothing shows that the cluster is gone: the state folder opens one, no management
// cluster and not the cluster itself has confirmed that the token is of its project, and that project has nothing of
// it. A token of another project looks the same, and with the keys the last access to a living cluster would be
// deleted.
func (d Destroyer) refuseUnseen(ctx context.Context) error {
	files := d.tools.Files
	kubeconfig, err := files.Read(platform.Kubeconfig)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	there, err := d.hasAnything(ctx)
	if err != nil {
		return err
	}
	if there || d.swept(kubeconfig) {
		return nil
	}
	if self, err := situation.SelfManaged(ctx, d.cfg, d.tools, d.sources); err == nil && self != nil {
		return nil // it has confirmed the project
	}
	return fmt.Errorf("it is not certain that cluster %s is gone: the token's project has nothing of it, and neither "+
		"the cluster nor a management cluster confirms that this is the cluster's project. Its kubeconfig, its "+
		"talosconfig and the journal were kept, and nothing was changed: run destroy with the token of the cluster's "+
		"project; where the cluster is gone, delete %s by hand", d.cfg.ClusterName,
		files.Path(""))
}

// hasAnything reports whether the project has something of the cluster beside what destroy leaves there unless asked:
// of an earlier cluster of the name.
func (d Destroyer) hasAnything(ctx context.Context) (bool, error) {
	inventory, err := hetzner.ListResources(ctx, d.tools.Hetzner)
	if err != nil {
		return false, err
	}
	return slices.ContainsFunc(inventory.Of(d.cfg.ClusterName), func(r hetzner.Resource) bool {
		return r.Kind != hetzner.KindSnapshot && r.Kind != hetzner.KindVolume && !r.IsEndpointAddress()
	}), nil
}

// worksWithToken reports whether a manager was given the same token. No token is of two projects.
func worksWithToken(ctx context.Context, cfg config.Config, tools platform.Tools, manager *kube.Cluster) bool {
	secret := &corev1.Secret{}
	if err := manager.Get(ctx, client.ObjectKey{Namespace: cfg.Namespace, Name: config.TokenSecretName},
		secret); err != nil {
		return false
	}
	is := string(secret.Data[config.TokenSecretKey])
	return is != "" && is == tools.Token.Reveal()
}
