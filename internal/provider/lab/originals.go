package lab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/client/images"
	"github.com/slipway-k8s/slipway/internal/cluster/render"
	"github.com/slipway-k8s/slipway/internal/provider/lab/originals"
)

// originalsFile, in a lab's folder, says of each project that the lab has a stand-in for what runs: the stand-in and
// why, or which releases. The lab reads it.
const originalsFile = "originals.json"

// projectRecord is what a lab runs of a project.
type projectRecord struct {
	Project string   `json:"project"`
	StandIn string   `json:"standIn,omitempty"` // why the stand-in runs
	Folders []string `json:"folders,omitempty"` // of its releases, that of the configured version first
}

// describe says for people what runs.
func (p projectRecord) describe() string {
	if len(p.Folders) == 0 {
		return fmt.Sprintf("%s is a stand-in: %s", p.Project, p.StandIn)
	}
	return fmt.Sprintf("%s is real: %s", p.Project, filepath.Dir(p.Folders[0]))
}

// originalsRecord is the content of originalsFile.
type originalsRecord struct {
	Projects []projectRecord `json:"projects"`
}

func (r originalsRecord) of(project string) projectRecord {
	for _, p := range r.Projects {
		if p.Project == project {
			return p
		}
	}
	return projectRecord{}
}

// originals makes sure that the released programs are there which a lab with programs out of images runs in the place
// of its stand-ins, and returns the file that says so to the lab; empty: all are stand-ins. A release that cannot be
// fetched leaves its project to the stand-in; one that was received and is refused is an error.
func (b *builder) originals(ctx context.Context, bin string, say flow.Say) (string, error) {
	file := filepath.Join(b.lab, originalsFile)
	if !b.sets.has(bin) {
		err := os.Remove(file)
		if errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
		return "", err
	}
	b.hurry()
	before, err := readOriginals(file)
	if err != nil {
		return "", err
	}
	now, err := b.fetchOriginals(ctx, before, b.installed(), say)
	if err != nil {
		return "", err
	}
	data, err := json.MarshalIndent(now, "", "  ")
	if err == nil {
		err = os.WriteFile(file, data, 0o600)
	}
	if err != nil {
		return "", fmt.Errorf("write which programs of the lab are released ones: %w", err)
	}
	return file, nil
}

// hurry bounds what auto waits for.
func (b *builder) hurry() {
	if b.sets.config.LabPrograms == config.LabProgramsAuto && b.released.Within == 0 {
		b.released.Within = 2 * attemptPatience
		b.released.Store.Patience = attemptPatience
	}
}

func readOriginals(file string) (r originalsRecord, err error) {
	data, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return r, nil
	}
	if err == nil {
		err = json.Unmarshal(data, &r)
	}
	if err != nil {
		return r, fmt.Errorf("read %s: %w", file, err)
	}
	return r, nil
}

// installed reports whether a cluster of the lab may have a project's manifest: it was installed for the program that
// the lab ran then, so that the lab stays with it.
func (b *builder) installed() bool {
	for _, clusters := range []string{filepath.Join(b.lab, "management"), filepath.Join(b.lab, "clusters"),
		filepath.Join(filepath.Dir(b.lab), "management")} {
		if entries, err := os.ReadDir(clusters); err == nil && len(entries) > 0 {
			return true
		}
	}
	return false
}

// fetchOriginals decides for each project what runs, and fetches what is missing.
func (b *builder) fetchOriginals(ctx context.Context, before originalsRecord, installed bool,
	say flow.Say) (now originalsRecord, err error) {
	configured, err := b.releases(ctx)
	if err != nil {
		return now, err
	}
	now.Projects = make([]projectRecord, len(configured))
	var missing []int
	for i, r := range configured {
		p := &now.Projects[i]
		*p = projectRecord{Project: r.Project}
		was := before.of(r.Project)
		if installed && len(was.Folders) == 0 {
			if p.StandIn = was.StandIn; p.StandIn == "" {
				p.StandIn = "this lab ran it before; a new lab runs the released one"
			}
			continue
		}
		if installed {
			p.Folders = slices.DeleteFunc(slices.Clone(was.Folders), func(dir string) bool { return !originals.Whole(dir) })
		}
		dir, err := b.released.Cached(r)
		if err != nil {
			return now, err
		}
		if dir == "" {
			missing = append(missing, i)
			continue
		}
		p.prefer(dir)
	}
	return now, b.fetchMissing(ctx, configured, missing, now.Projects, say)
}

// prefer puts the folder of the configured version first.
func (p *projectRecord) prefer(dir string) {
	p.Folders = append([]string{dir}, slices.DeleteFunc(p.Folders, func(other string) bool { return other == dir })...)
}

// releases are the configured ones.
func (b *builder) releases(ctx context.Context) ([]originals.Release, error) {
	cfg := b.sets.config
	sources, err := render.Read(render.VariablesOf(cfg), b.overrides)
	if err != nil {
		return nil, err
	}
	return originals.Configured(ctx, cfg, sources)
}

// fetchMissing fetches releases, all at once. Two commands at once fetch them once.
func (b *builder) fetchMissing(ctx context.Context, configured []originals.Release, missing []int,
	projects []projectRecord, say flow.Say) error {
	if len(missing) == 0 {
		return nil
	}
	if err := os.MkdirAll(b.released.Dir, 0o755); err != nil {
		return fmt.Errorf("create a folder for released programs: %w", err)
	}
	unlock, err := waitForLock(ctx, filepath.Join(b.released.Dir, fetchLock), "fetching released programs", say)
	if err != nil {
		return err
	}
	defer unlock()
	var names []string
	for _, i := range missing {
		names = append(names, configured[i].Name())
	}
	say("fetching %s, each with its manifest or chart", strings.Join(names, ", "))
	progress := images.NewProgress(say, sayBuildEvery)
	failures := make([]error, len(missing))
	var fetching sync.WaitGroup
	for n, i := range missing {
		fetching.Go(func() {
			dir, err := b.released.Fetch(ctx, configured[i], progress)
			if failures[n] = err; err == nil {
				projects[i].prefer(dir)
			}
		})
	}
	fetching.Wait()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	var refused []error
	for n, i := range missing {
		switch r, err := configured[i], failures[n]; {
		case err == nil:
		case originals.Refused(err):
			refused = append(refused, fmt.Errorf("fetch %s: %w", r.Name(), err))
		default:
			projects[i].fallBack(r, err, say)
		}
	}
	return errors.Join(refused...)
}

// fallBack leaves a project to an earlier release that the lab has installed, or to the stand-in.
func (p *projectRecord) fallBack(r originals.Release, err error, say flow.Say) {
	reason := fmt.Sprintf("%s could not be fetched: %s", r.Name(), strings.ReplaceAll(err.Error(), "\n", "; "))
	runs := "its stand-in runs"
	if len(p.Folders) > 0 {
		runs = "this lab continues with " + filepath.Base(filepath.Dir(p.Folders[0]))
	} else {
		p.StandIn = reason
	}
	say("%s; %s. A mirror of its images goes into registry.yaml, another place of its manifest or chart into %s; a new "+
		"lab tries again", reason, runs, r.Instead)
}

// describeOriginals says what a new lab would run of each project.
func (b *builder) describeOriginals(ctx context.Context, bin string, say flow.Say) error {
	if !b.sets.has(bin) {
		return nil
	}
	b.hurry()
	now, err := b.fetchOriginals(ctx, originalsRecord{}, false, say)
	if err != nil {
		return err
	}
	for _, p := range now.Projects {
		say("%s", p.describe())
	}
	return nil
}

// configuredOriginals are the folders of the configured releases that are there.
func (b *builder) configuredOriginals(ctx context.Context) (folders []string, err error) {
	configured, err := b.releases(ctx)
	if err != nil {
		return nil, err
	}
	for _, r := range configured {
		dir, err := b.released.Cached(r)
		if err != nil {
			return nil, err
		}
		if dir != "" {
			folders = append(folders, dir)
		}
	}
	return folders, nil
}

// recordOf is the file that says which released programs a lab runs; empty: it runs none.
func (l *Lab) recordOf() string {
	if file := filepath.Join(l.Dir, originalsFile); Exists(file) {
		return file
	}
	return ""
}
