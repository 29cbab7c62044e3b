package changes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"time"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/cluster/render"
	"github.com/slipway-k8s/slipway/platform"
)

// appliedFile is the file of the state folder with what `apply` brought last to a cluster that manages itself: the
// digests of the manifests and the configured values of their variables, as the journal has them of the step apply.
const appliedFile = "applied.json"

// ManifestDigests are the digests of the files that the cluster's objects are made from. Values that only a run knows are not
// in them.
func ManifestDigests(cfg config.Config, sources render.Sources) (map[string]render.Digest, error) {
	v := maps.Clone(sources.Vars)
	delete(v, render.ImageNameVariable)
	files := map[string]render.Source{"cluster": sources.Cluster, "healthCheck": sources.HealthCheck}
	if cfg.OIDCIssuerURL != "" {
		files["oidcPatch"] = sources.OidcPatch
	}
	for _, s := range sources.Added {
		files[s.Path] = s
	}
	digests := map[string]render.Digest{}
	for name, s := range files {
		digest, err := s.Digest(v)
		if err != nil {
			return nil, err
		}
		digests[name] = digest
	}
	return digests, nil
}

// appliedRecord is the content of appliedFile.
type appliedRecord struct {
	At        time.Time                `json:"at"`
	Manifests map[string]render.Digest `json:"manifests"`
}

// RecordApplied records that the cluster has what is configured, and keeps copies of the files.
func RecordApplied(ctx context.Context, cfg config.Config, tools platform.Tools, sources render.Sources,
	j flow.Journal) error {
	digests, err := ManifestDigests(cfg, sources)
	if err != nil {
		return err
	}
	if err := writeApplied(tools.Files, digests); err != nil {
		return err
	}
	return KeepSources(ctx, tools, sources, j)
}

func writeApplied(files platform.Files, digests map[string]render.Digest) error {
	data, err := json.MarshalIndent(appliedRecord{time.Now().UTC(), digests}, "", "  ")
	if err == nil {
		err = files.Write(appliedFile, append(data, '\n'))
	}
	if err != nil {
		return fmt.Errorf("record what was applied: %w", err)
	}
	return nil
}

// CopyApplied gives another state folder what one knows of what was applied last, with the copies of the files. known
// is false where it knows nothing.
func CopyApplied(ctx context.Context, to, from platform.Files) (known bool, err error) {
	recorded, err := flow.Folder(from.String()).Load(ctx)
	if err != nil {
		return false, fmt.Errorf("read what was applied last: %w", err)
	}
	digests, _ := applied(platform.Tools{Files: from}, recorded)
	copies, err := from.Read(KeptSourcesFile)
	if len(digests) == 0 || errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err == nil {
		err = to.Write(KeptSourcesFile, copies)
	}
	if err != nil {
		return false, fmt.Errorf("copy the files that were applied last: %w", err)
	}
	return true, writeApplied(to, digests)
}

// ForgetApplied removes the record: the cluster that it is of is gone, or was restored.
func ForgetApplied(files platform.Files) error { return files.Remove(appliedFile) }

// applied are the digests of the manifests that were applied last, and since when the cluster has them where that is not
// the step apply's doing; none: it is not known.
func applied(tools platform.Tools, recorded flow.Snapshot) (files map[string]render.Digest, since time.Time) {
	var brought appliedRecord
	data, err := tools.Files.Read(appliedFile)
	if err == nil && json.Unmarshal(data, &brought) == nil && len(brought.Manifests) > 0 {
		return brought.Manifests, brought.At
	}
	if json.Unmarshal(recorded.Steps["apply"].Spec, &files) != nil {
		return nil, since
	}
	return files, since
}

// AppliedSources are the sources with the texts of the manifests that were applied last. known is false where these, or
// one of them, are lost.
func AppliedSources(tools platform.Tools, sources render.Sources, recorded flow.Snapshot) (was render.Sources,
	known bool) {
	files, _ := applied(tools, recorded)
	if len(files) == 0 {
		return sources, false
	}
	texts := KeptSources(tools)
	was, known = sources, true
	take := func(name string, s *render.Source) {
		file, applied := files[name]
		if !applied {
			return
		}
		delete(files, name)
		text, kept := texts[file.SHA256]
		s.Data, known = []byte(text), known && kept
	}
	take("cluster", &was.Cluster)
	take("healthCheck", &was.HealthCheck)
	take("oidcPatch", &was.OidcPatch)
	was.Added = nil
	for _, s := range sources.Added {
		if _, applied := files[s.Path]; applied {
			take(s.Path, &s)
			was.Added = append(was.Added, s)
		}
	}
	for path, file := range files { // those that have left the folder
		text, kept := texts[file.SHA256]
		known = known && kept
		was.Added = append(was.Added, render.Source{Name: path, Path: path, Data: []byte(text), Own: true})
	}
	return was, known
}

// KeptValues is a configuration in which the cluster has every value that differs from it without having been asked
// for: the cluster was changed since, and the configuration was not.
func KeptValues(cfg config.Config, all []Deviation) (config.Config, error) {
	for _, d := range all {
		if d.Requested || d.Variable == "" {
			continue
		}
		for _, v := range config.Variables() {
			if v.Name == d.Variable {
				if err := v.Set(&cfg, d.Live); err != nil {
					return cfg, err
				}
			}
		}
	}
	return cfg, nil
}
