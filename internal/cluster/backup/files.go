package backup

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/slipway-k8s/slipway/bootstrap"
	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/internal/client/kube"
	"github.com/slipway-k8s/slipway/internal/cluster/capi"
	"github.com/slipway-k8s/slipway/internal/cluster/render"
)

// renderedFile is what the manifests came to, in the backup.
const renderedFile = "rendered/cluster.yaml"

// readFiles takes the configuration and the files of today, and what they make of the live cluster's address and image.
func (s *CollectorSource) readFiles() error {
	settings, err := yaml.Marshal(s.o.cfg)
	if err != nil {
		return fmt.Errorf("write the configuration: %w", err)
	}
	s.Contents.Config = settings
	sources, err := render.Read(render.VariablesOf(s.o.cfg), s.o.tools.Overrides)
	if err != nil {
		return err
	}
	for _, f := range sources.All() {
		s.Contents.Files = append(s.Contents.Files, File{Name: f.Path, Data: f.Data})
	}
	r, err := render.Manifests(s.o.cfg, sources, s.liveVariables(s.o.cfg, sources))
	if err != nil {
		return err
	}
	var rendered bytes.Buffer
	for _, o := range r.Now {
		data, err := yaml.Marshal(o.Object)
		if err != nil {
			return fmt.Errorf("write %s: %w", kube.Describe(o), err)
		}
		rendered.WriteString("---\n")
		rendered.Write(data)
	}
	s.Contents.Files = append(s.Contents.Files, File{Name: renderedFile, Data: rendered.Bytes()})
	// By name, as they are read back.
	slices.SortFunc(s.Contents.Files, func(a, b File) int { return strings.Compare(a.Name, b.Name) })
	return nil
}

// liveVariables are the manifests' with what only the live objects know.
func (s *CollectorSource) liveVariables(cfg config.Config, sources render.Sources) render.Variables {
	var image, zone, template string
	var endpoint render.Endpoint
	var infrastructure, tcp, machines *unstructured.Unstructured
	for i := range s.Contents.Objects {
		o := &s.Contents.Objects[i]
		switch {
		case o.GroupVersionKind() == capi.HetznerClusterKind && o.GetName() == cfg.ClusterName:
			zone, endpoint = capi.Text(o, "spec", "hcloudNetwork", "networkZone"), render.EndpointOf(o)
			infrastructure = o
		case o.GroupVersionKind() == capi.TalosControlPlaneKind && o.GetName() == cfg.ControlPlaneName():
			template, tcp = capi.Text(o, "spec", "infrastructureTemplate", "name"), o
		}
	}
	for i := range s.Contents.Objects {
		if o := &s.Contents.Objects[i]; o.GroupVersionKind() == capi.MachineTemplateKind && o.GetName() == template {
			image, machines = capi.Text(o, "spec", "template", "spec", "imageName"), o
		}
	}
	return render.ManifestVariables(sources, image, zone, endpoint).Placed(render.PlacementOf(infrastructure, tcp,
		machines))
}

// readReleases reads what Helm says of the releases. Those that are not deployed (yet) are left out.
func (s *CollectorSource) readReleases(workload *kube.Cluster) error {
	sources, err := render.Read(render.VariablesOf(s.o.cfg), s.o.tools.Overrides)
	if err != nil {
		return err
	}
	s.Contents.Releases = []Release{}
	for _, in := range render.AllCharts(s.o.cfg, sources) {
		if err := s.readRelease(workload, in.Chart); err != nil {
			return err
		}
	}
	return nil
}

func (s *CollectorSource) readRelease(workload *kube.Cluster, c bootstrap.Chart) error {
	helm, err := workload.Helm(c.Namespace, "backup",
		func(format string, args ...any) { fmt.Fprintf(s.o.tools.Log, format+"\n", args...) })
	if err != nil {
		return err
	}
	live, err := helm.Deployed(c.Release)
	if err != nil || live == nil {
		return err
	}
	s.Contents.Releases = append(s.Contents.Releases, Release{
		Name: c.Release, Namespace: c.Namespace, Chart: c.Name, Version: live.Version, Repository: c.Repository,
		Values: live.Values,
	})
	return nil
}

// readVersions takes those that are configured, and over them what the live objects say: the operator may have changed
// the configuration since.
func (s *CollectorSource) readVersions(ctx context.Context) error {
	versions := map[string]string{}
	for name, value := range render.VariablesOf(s.o.cfg) {
		if strings.HasSuffix(name, versionSuffix) && value != "" {
			versions[name] = value
		}
	}
	for _, o := range s.Contents.Objects {
		if o.GroupVersionKind() == capi.TalosControlPlaneKind && o.GetName() == s.o.cfg.ControlPlaneName() {
			versions["KUBERNETES"+versionSuffix] = capi.Text(&o, "spec", "version")
		}
	}
	for _, r := range s.Contents.Releases {
		for variable, c := range map[string]bootstrap.Chart{"CILIUM": bootstrap.Cilium(), "HCLOUD_CCM": bootstrap.HCloudCCM(),
			"TALOS_CCM": bootstrap.TalosCCM()} {
			if r.Name == c.Release {
				versions[variable+versionSuffix] = r.Version
			}
		}
	}
	s.Contents.Header.Versions = versions
	if s.manager == nil {
		return nil
	}
	installed := capi.ListOf(capi.ProviderKind)
	if err := s.manager.List(ctx, installed); kube.Absent(err) { // its definition is lost, too
		return nil
	} else if err != nil {
		return fmt.Errorf("list the providers of Cluster API: %w", err)
	}
	labels := map[string]string{"cluster-api": "CAPI", "infrastructure-hetzner": "CAPH", "bootstrap-talos": "CABPT",
		"control-plane-talos": "CACPPT"}
	for i := range installed.Items {
		if o := &installed.Items[i]; labels[o.GetName()] != "" {
			versions[labels[o.GetName()]+versionSuffix] = capi.Text(o, "version")
		}
	}
	return nil
}

const versionSuffix = "_VERSION"
