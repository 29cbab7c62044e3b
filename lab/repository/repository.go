// Package repository creates what the lab's clusters are installed from: the provider repository that clusterctl reads
// from a folder, and the charts that Helm reads over HTTP.
//
// The manifests of Cluster API's core, CABPT and CACPPT are built from the modules of the programs. CAPH, cert-manager
// and the charts are stand-ins written for the lab: small, with the names, values, images, arguments and API fields of
// the originals, and marked as stand-ins. In the place of a stand-in's the released manifest or chart of a project is
// written where the lab runs its released programs.
package repository

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/slipway-k8s/slipway/lab/caph/api"
	"github.com/slipway-k8s/slipway/lab/originals"
)

// Folders below the one that Write is given.
const (
	providersFolder = "providers"
	chartsFolder    = "charts"
)

// DefaultCertManagerVersion is the version that clusterctl v1.13.6 installs
// unless told otherwise (CertManagerDefaultVersion in its config package).
const DefaultCertManagerVersion = "v1.21.1"

// Options are the sources of the repository.
type Options struct {
	// Bin is the folder of the upstream programs. They decide the versions of
	// the providers, see Modules.
	Bin string
	// Core are the folders of the programs of Cluster API's core, that of the
	// version to use where no other is asked for first; none: Bin.
	Core []string
	// Modules, if set, are used instead of those of the programs.
	Modules []Module
	// CertManagerVersion that the stand-in is published under; by default
	// DefaultCertManagerVersion.
	CertManagerVersion string
	// Originals are released manifests and charts, in the place of those of stand-ins.
	Originals originals.Set
}

// Contents describes what Write wrote.
type Contents struct {
	// Providers is the absolute folder that holds <label>/<version>/<file>, as
	// clusterctl expects of a local repository.
	Providers string
	// Components maps a provider's manifest label (cluster-api,
	// infrastructure-hetzner, …) to the absolute path of its components: the
	// url of the provider in clusterctl's configuration.
	Components map[string]string
	// CertManager is the absolute path of cert-manager.yaml: the url of
	// cert-manager in clusterctl's configuration.
	CertManager        string
	CertManagerVersion string
	// Versions of what is on offer: CAPI, CAPH, CABPT, CACPPT, CILIUM,
	// HCLOUD_CCM and TALOS_CCM.
	Versions map[string]string
	// Offers are all versions of what there are several of.
	Offers map[string][]string
	// AnyVersion are the charts, by the names of Versions, that WithCharts can offer as any version.
	AnyVersion []string
	// Charts are the charts that Handler serves.
	Charts []Chart
	// Notes are the differences from the original repositories.
	Notes []string

	further map[string][]string // versions that stand-ins' charts are offered as besides their own
}

// Write writes the repository to dir, replacing the result of an earlier call. The same modules give the same bytes.
func Write(ctx context.Context, dir string, opt Options) (Contents, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return Contents{}, fmt.Errorf("write the lab's repository: %w", err)
	}
	if opt.Modules == nil {
		folders := opt.Core
		if len(folders) == 0 {
			folders = []string{opt.Bin}
		}
		if opt.Modules, err = Modules(ctx, opt.Bin, folders...); err != nil {
			return Contents{}, err
		}
	}
	if opt.CertManagerVersion == "" {
		opt.CertManagerVersion = DefaultCertManagerVersion
	}
	for _, folder := range []string{providersFolder, chartsFolder} {
		// A version that is not written any more must not be offered.
		if err := os.RemoveAll(filepath.Join(dir, folder)); err != nil {
			return Contents{}, fmt.Errorf("replace the lab's repository: %w", err)
		}
	}
	contents := Contents{
		Providers:  filepath.Join(dir, providersFolder),
		Components: map[string]string{},
		Versions:   map[string]string{},
		Offers:     map[string][]string{},
		Notes:      notes(opt.Originals),
		further:    map[string][]string{},
	}
	if err := contents.writeProviders(ctx, opt.Modules); err != nil {
		return Contents{}, err
	}
	if err := contents.writeCAPH(opt.Originals.Of(originals.CAPH)); err != nil {
		return Contents{}, err
	}
	if err := contents.writeCertManager(opt.CertManagerVersion, opt.Originals.Of(originals.CertManager)); err != nil {
		return Contents{}, err
	}
	if err := contents.writeCharts(filepath.Join(dir, chartsFolder), opt.Originals); err != nil {
		return Contents{}, err
	}
	return contents, nil
}

// notes are the limits of the stand-ins that are on offer.
func notes(released originals.Set) (notes []string) {
	if released.Of(originals.CAPH) == nil {
		notes = append(notes, "CAPH's manifest is a stand-in: it has the kinds of HCloud machines, remediations and their "+
			"templates and HetznerCluster, without HetznerBareMetal kinds and HetznerClusterTemplate")
	}
	if released.Of(originals.CertManager) == nil {
		notes = append(notes, "cert-manager's manifest is a stand-in: issuers, certificates and certificate requests with "+
			"open schemas, one controller, no webhook")
	}
	var standIns []string
	for _, s := range chartSources {
		if released.Of(s.project) == nil {
			standIns = append(standIns, s.name)
		}
	}
	if len(standIns) == len(chartSources) {
		return append(notes, "the charts are stand-ins with the originals' names, versions and values; Cilium's pods are "+
			"simulated")
	}
	return append(notes, fmt.Sprintf("of the charts %s are stand-ins with the originals' names, versions and values; "+
		"Cilium's pods are simulated", strings.Join(standIns, ", ")))
}

// writeProviders writes the provider repository.
func (c *Contents) writeProviders(ctx context.Context, modules []Module) error {
	for _, p := range providers {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("write the provider repository: %w", err)
		}
		of := p.modulesFor(modules)
		if len(of) == 0 {
			return fmt.Errorf("module %s, the source of the manifests of %s, does not exist", p.module, p.label)
		}
		if err := c.writeVersions(p, of); err != nil {
			return err
		}
	}
	return nil
}

// writeVersions writes a provider once for each module. The first one is used where no other is asked for, so it is
// written last: Components names it.
func (c *Contents) writeVersions(p provider, modules []Module) error {
	delete(c.Offers, p.key)
	for _, m := range slices.Backward(modules) {
		components, metadata, err := p.build(m)
		if err != nil {
			return err
		}
		if err := c.writeProvider(p.label, m.Version, p.components, components, metadata); err != nil {
			return err
		}
		c.Versions[p.key] = m.Version
		c.Offers[p.key] = slices.Insert(c.Offers[p.key], 0, m.Version)
	}
	return nil
}

// WithCore are the contents with the manifests of the programs of Cluster API's core in some folders. It writes them
// into the folder that Write has written.
func (c Contents) WithCore(ctx context.Context, folders []string) (Contents, error) {
	c.Components, c.Versions, c.Offers = maps.Clone(c.Components), maps.Clone(c.Versions), maps.Clone(c.Offers)
	modules, err := coreModules(ctx, folders)
	if err != nil {
		return c, err
	}
	return c, c.writeVersions(providers[core], modules)
}

const (
	caphLabel      = "infrastructure-hetzner"
	caphComponents = "infrastructure-components.yaml"
)

// writeCAPH writes CAPH's releases or, without one, the stand-in once for each version that it follows. The first one
// is used where no other is asked for, so it is written last: Components names it.
func (c *Contents) writeCAPH(releases []originals.Original) error {
	for _, o := range slices.Backward(releases) {
		components, err := o.Read(caphComponents)
		if err != nil {
			return err
		}
		metadata, err := o.Read(metadataFile)
		if err != nil {
			return err
		}
		if err := c.writeProvider(caphLabel, o.Version, caphComponents, components, metadata); err != nil {
			return err
		}
		c.Versions["CAPH"] = o.Version
		c.Offers["CAPH"] = slices.Insert(c.Offers["CAPH"], 0, o.Version)
	}
	if len(releases) > 0 {
		return nil
	}
	versions := api.Versions()
	for _, version := range slices.Backward(versions) {
		components, metadata, err := CAPHManifest(version)
		if err != nil {
			return err
		}
		if err := c.writeProvider(caphLabel, version, caphComponents, components, metadata); err != nil {
			return err
		}
	}
	c.Versions["CAPH"] = versions[0]
	c.Offers["CAPH"] = versions
	return nil
}

// writeProvider writes one provider in clusterctl's layout.
func (c *Contents) writeProvider(label, version, name string, components, metadata []byte) error {
	folder := filepath.Join(c.Providers, label, version)
	c.Components[label] = filepath.Join(folder, name)
	if err := writeFile(c.Components[label], components); err != nil {
		return fmt.Errorf("write the components of %s: %w", label, err)
	}
	if err := writeFile(filepath.Join(folder, metadataFile), metadata); err != nil {
		return fmt.Errorf("write the metadata of %s: %w", label, err)
	}
	return nil
}

// writeCertManager writes cert-manager's releases or, without one, the stand-in.
func (c *Contents) writeCertManager(version string, releases []originals.Original) error {
	for _, o := range slices.Backward(releases) { // the first one last: CertManager names it
		manifest, err := o.Read(certManagerFile)
		if err != nil {
			return err
		}
		if err := c.writeCertManagerManifest(o.Version, manifest); err != nil {
			return err
		}
	}
	if len(releases) > 0 {
		return nil
	}
	manifest, err := certManagerManifest(version)
	if err != nil {
		return err
	}
	return c.writeCertManagerManifest(version, manifest)
}

const certManagerFile = "cert-manager.yaml"

// writeCertManagerManifest writes a manifest where clusterctl's cert-manager client, which reads it like a provider
// named cert-manager, looks for it.
func (c *Contents) writeCertManagerManifest(version string, manifest []byte) error {
	c.CertManager = filepath.Join(c.Providers, "cert-manager", version, certManagerFile)
	c.CertManagerVersion = version
	if err := writeFile(c.CertManager, manifest); err != nil {
		return fmt.Errorf("write cert-manager's manifest: %w", err)
	}
	return nil
}

// writeFile writes a file and the folders above it.
func writeFile(name string, content []byte) error {
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	// Renamed, so that who reads an earlier content reads all of it.
	if err := os.WriteFile(name+".partial", content, 0o644); err != nil {
		return err
	}
	return os.Rename(name+".partial", name)
}
