// Package originals reads which released programs run in a lab in the place of its stand-ins. The command that starts
// the lab has fetched them, each release with its manifest or chart, into a folder with a list of what is in it.
package originals

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"github.com/slipway-k8s/slipway/lab/kubelet"
)

// Names of the projects that the lab has stand-ins for.
const (
	CAPH        = "caph"
	CertManager = "cert-manager"
	HCloudCCM   = "hcloud-ccm"
	TalosCCM    = "talos-ccm"
)

// listFile, in the folder of a release, is its list.
const listFile = "original.json"

// Original is a release of a project.
type Original struct {
	Dir      string         `json:"-"`
	Project  string         `json:"project"`
	Version  string         `json:"version"`
	Source   string         `json:"source"` // address of the manifest, or of the chart's repository
	Files    []File         `json:"files"`
	Chart    map[string]any `json:"chart"` // Chart.yaml; nil: the files are a manifest
	Programs []Program      `json:"programs"`
}

// File is a file of a release: of a manifest, or the archive of a chart.
type File struct {
	Name string `json:"name"`
	From string `json:"from"`
}

// Program is the program of an image.
type Program struct {
	Image  string   `json:"image"` // as the Pods of the release name it
	Digest string   `json:"digest"`
	File   string   `json:"file"`
	Prefix []string `json:"prefix"`
}

// Read returns a file of the release.
func (o Original) Read(name string) ([]byte, error) {
	data, err := os.ReadFile(filepath.Join(o.Dir, name))
	if err != nil {
		return nil, fmt.Errorf("read the release of %s %s: %w", o.Project, o.Version, err)
	}
	return data, nil
}

// Set is what a lab runs of each project.
type Set struct {
	releases map[string][]Original
	standIns map[string]string
}

// Load reads the file that the command wrote for the lab; empty: there are only stand-ins.
func Load(file string) (s Set, err error) {
	s = Set{map[string][]Original{}, map[string]string{}}
	if file == "" {
		return s, nil
	}
	var record struct {
		Projects []struct {
			Project, StandIn string
			Folders          []string
		}
	}
	if err := readJSON(file, &record); err != nil {
		return s, err
	}
	for _, p := range record.Projects {
		if p.StandIn != "" {
			s.standIns[p.Project] = p.StandIn
		}
		for _, dir := range p.Folders {
			o := Original{Dir: dir}
			if err := readJSON(filepath.Join(dir, listFile), &o); err != nil {
				return s, err
			}
			s.releases[p.Project] = append(s.releases[p.Project], o)
		}
	}
	return s, nil
}

func readJSON(file string, into any) error {
	data, err := os.ReadFile(file)
	if err == nil {
		err = json.Unmarshal(data, into)
	}
	if err != nil {
		return fmt.Errorf("read which programs of the lab are released ones: %s: %w", file, err)
	}
	return nil
}

// Without is a set of stand-ins alone, for a reason that each project with a release gets.
func (s Set) Without(reason string) Set {
	none := Set{map[string][]Original{}, map[string]string{}}
	for project, why := range s.standIns {
		none.standIns[project] = why
	}
	for project := range s.releases {
		none.standIns[project] = reason
	}
	return none
}

// Of are the releases of a project, the one to use first; none: its stand-in runs.
func (s Set) Of(project string) []Original { return s.releases[project] }

// All are all releases, by project.
func (s Set) All() (all []Original) {
	for _, project := range []string{CAPH, CertManager, HCloudCCM, TalosCCM} {
		all = append(all, s.releases[project]...)
	}
	return all
}

// Programs is the mapping of images: the programs of the releases, for their versions alone, and behind them the given
// one, whose stand-ins get a note why they run.
func (s Set) Programs(others []kubelet.Program) (mapping []kubelet.Program) {
	for _, o := range s.All() {
		for _, p := range o.Programs {
			image, tag := kubelet.SplitImage(p.Image)
			mapping = append(mapping, kubelet.Program{Image: image, Tag: tag, Exec: filepath.Join(o.Dir, p.File),
				Prefix: p.Prefix, Fidelity: kubelet.Real,
				Note: "from the image " + p.Image + "@" + p.Digest + ", unmodified"})
		}
	}
	for _, p := range others {
		if project := standsInFor(p); project != "" && p.Note == "" {
			p.Note = s.standIns[project]
		}
		mapping = append(mapping, p)
	}
	return mapping
}

// standsInFor is the project whose stand-in a program is.
func standsInFor(p kubelet.Program) string {
	if p.Fidelity != kubelet.StandIn || len(p.Prefix) == 0 {
		return ""
	}
	return map[string]string{"caph": CAPH, "cert-manager": CertManager, "hcloud-ccm": HCloudCCM,
		"talos-ccm": TalosCCM}[p.Prefix[0]]
}
