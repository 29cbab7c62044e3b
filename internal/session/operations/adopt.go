package operations

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/base/usage"
	"github.com/slipway-k8s/slipway/internal/client/kube"
	"github.com/slipway-k8s/slipway/internal/cluster/connect"
	"github.com/slipway-k8s/slipway/internal/cluster/render"
	"github.com/slipway-k8s/slipway/internal/cluster/situation"
	"github.com/slipway-k8s/slipway/internal/ensure/claims"
	"github.com/slipway-k8s/slipway/internal/operation/adopt"
	"github.com/slipway-k8s/slipway/internal/operation/forecast"
	"github.com/slipway-k8s/slipway/internal/planning"
	"github.com/slipway-k8s/slipway/internal/session"
	"github.com/slipway-k8s/slipway/internal/state/settings"
	"github.com/slipway-k8s/slipway/platform"
	"github.com/slipway-k8s/slipway/steps"
)

// DescribeCluster reads the cluster that the cluster of MANAGEMENT_KUBECONFIG manages, and makes the files that
// describe it. It changes nothing.
func DescribeCluster(ctx context.Context, k session.Cluster) (*adopt.Description, error) {
	at, err := k.InspectOnline(ctx)
	if err != nil {
		return nil, err
	}
	at.Tools = at.Tools.WithDefaults()
	manager, err := managerOf(ctx, at)
	if err != nil {
		return nil, err
	}
	var chosen adopt.Selection
	for name, to := range map[string]*string{"CLUSTER_NAME": &chosen.Cluster, "NAMESPACE": &chosen.Namespace} {
		if v := settings.Variable(name); at.Cfg.Places[v.Field] != "" {
			*to = v.Get(at.Cfg.Config)
		}
	}
	d, err := adopt.Describe(ctx, at.Cfg.Config, at.Tools, manager, chosen)
	if err != nil {
		return nil, err
	}
	for i := range d.Files {
		k.Caller.Hide.Each(&d.Files[i].Why)
	}
	for i := range d.Notes {
		k.Caller.Hide.Each(&d.Notes[i])
	}
	return d, nil
}

// managerOf is the cluster that has the Cluster API objects: the one that MANAGEMENT_KUBECONFIG names, else the one
// that the state folder leads to, as after a readoption.
func managerOf(ctx context.Context, at session.Inspection) (*kube.Cluster, error) {
	if at.Tools.ManagementGiven() {
		data, err := at.Tools.Existing(ctx, at.Cfg.ManagementName())
		if err != nil {
			return nil, err
		}
		return connect.Management(at.Tools, data)
	}
	lacks := func(file string) bool {
		_, err := at.Tools.Files.Read(file)
		return errors.Is(err, fs.ErrNotExist)
	}
	if lacks(platform.ManagementKubeconfig) && lacks(platform.Kubeconfig) {
		return nil, usage.Errorf("adopt needs the kubeconfig of the cluster that has the Cluster API objects: name " +
			"it in MANAGEMENT_KUBECONFIG; after a pivot it is the cluster's own, and for a kind cluster \"kind get " +
			"kubeconfig\" prints it")
	}
	sources, err := render.Read(render.VariablesOf(at.Cfg.Config), at.Tools.Overrides)
	if err != nil {
		return nil, &usage.Error{Err: err}
	}
	manager, _, err := situation.ManagingCluster(ctx, at.Cfg.Config, at.Tools, sources, func(string, ...any) {})
	return manager, err
}

// Folders are where the files of a description are written.
type Folders struct {
	Config string // of bootstrap.yaml
	Files  string // of manifests/ and bootstrap/
}

func (f Folders) of(file adopt.File) string {
	if file.Path == adopt.ConfigFile {
		return f.Config
	}
	return f.Files
}

// WriteDescription writes the files of a description, the configuration last: where a call is interrupted before that,
// the next one takes the files that are there for the operator's own. What takes the place of an operator's file is no
// part of a description, so that none is lost.
func WriteDescription(folders Folders, d *adopt.Description) error {
	for _, f := range d.Files {
		folder, name := filepath.Split(filepath.Join(folders.of(f), filepath.FromSlash(f.Path)))
		err := os.MkdirAll(folder, 0o755)
		if err == nil {
			err = platform.FilesIn(folder).Write(name, f.Data)
		}
		if err != nil {
			return fmt.Errorf("write what describes the cluster: %w", err)
		}
	}
	return nil
}

// CopyOwnFiles copies the folders of the operator's files, as far as they exist.
func CopyOwnFiles(to, from string) error {
	for _, folder := range render.OwnFolders() {
		path := filepath.Join(from, folder)
		if info, err := os.Stat(path); err != nil || !info.IsDir() {
			continue // such as the built command; what cannot be read, the configuration was read without
		}
		if err := os.CopyFS(filepath.Join(to, folder), os.DirFS(path)); err != nil {
			return fmt.Errorf("copy %s: %w", path, err)
		}
	}
	return nil
}

// AdoptionTargets are the steps of an adoption: all of the bootstrap that only find what exists in a cluster that is as
// its files describe it. The firewall and a pivot are left to the next run.
func AdoptionTargets(plan *steps.Plan, d *adopt.Description) []string {
	if d.ManagesItself {
		return append([]string{plan.Clean.Name()}, plan.Managed...)
	}
	return append([]string{plan.Endpoint.Name()}, plan.Bootstrap...)
}

// PlanAdoption predicts what an adoption does. Its error is about what it would change: an adoption records the cluster,
// and changes nothing of it.
func PlanAdoption(ctx context.Context, k session.Cluster, d *adopt.Description) (f forecast.Forecast, targets []string,
	err error) {
	b, err := k.PlanOffline()
	if err != nil {
		return f, nil, err
	}
	k.Targets = AdoptionTargets(b.Plan, d)
	f, err = Plan(ctx, k)
	if err == nil && f.Unforeseen != "" { // once more: an API server, or a webhook behind it, may not have answered
		f, err = Plan(ctx, k)
	}
	if err != nil || f.Existing == nil { // it is this state folder's: an adoption is resumed
		return f, k.Targets, err
	}
	if f.Unforeseen != "" {
		return f, nil, fmt.Errorf("compare the cluster with the files that describe it: %s; nothing was changed: run "+
			"the same again when the cluster answers", f.Unforeseen)
	}
	var would []string
	for _, s := range f.Steps {
		if s.Would != flow.ActionAdopt && s.Would != flow.ActionReuse && s.Step != claims.Step {
			would = append(would, fmt.Sprintf("%s (%s)", s.Step, s.Why))
		}
	}
	for _, c := range f.Consequences {
		would = append(would, c.String())
	}
	switch {
	case f.Existing.Refused:
		return f, nil, usage.Errorf("%s", f.Existing.Sentence)
	case f.Existing.ReservedBy != "":
		return f, nil, usage.Errorf("cluster %s is another state folder's: %s has reserved its name. Work with that state folder "+
			"(--state-dir; state pull, where STATE names a store); where it is lost, any other target takes the cluster over",
			f.Cluster, f.Existing.ReservedBy)
	case len(would) > 0:
		return f, nil, usage.Errorf("the cluster is not as the files describe it, and an adoption changes nothing of it: %s. "+
			"Change the files so that \"plan %s\" says adopt of each step, then adopt again; or have a run bring the cluster to the "+
			"files: it takes it over, too", strings.Join(would, "; "), session.TargetAll)
	}
	return f, k.Targets, nil
}

// Adopt records the cluster in the state folder: it asks, reserves the cluster's name, and runs the steps that find what
// exists. An adoption that was cut off is resumed.
func Adopt(ctx context.Context, s *session.Session, b planning.Bootstrap, f forecast.Forecast,
	ask session.Questions) (result session.Result, err error) {
	if f.Existing != nil {
		err := s.Confirm(ctx, ask, "adopt asks before it reserves the cluster's name", fmt.Sprintf(
			"Type the cluster's name (%s) to make it this state folder's: ", f.Cluster), f.Cluster)
		if err != nil {
			return result, err
		}
	}
	err = s.Locked(ctx, func(ctx context.Context) error {
		return s.Hub.Task("claim", "the cluster's name is this state folder's", func(say flow.Say) error {
			return claims.ReserveFree(ctx, s.Cfg.Config, s.Tools.WithDefaults(), say)
		})
	})
	if reserved := (*claims.ReservedError)(nil); errors.As(err, &reserved) {
		return result, &usage.Error{Err: err}
	}
	if err != nil {
		return result, err
	}
	ask.Consent = nil // it is given
	return s.Bootstrap(ctx, b, ask)
}
