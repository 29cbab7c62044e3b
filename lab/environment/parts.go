package environment

import (
	"debug/buildinfo"
	"fmt"
	"path"
	"path/filepath"
	"strings"

	"github.com/slipway-k8s/slipway/lab/kubelet"
	"github.com/slipway-k8s/slipway/lab/plane"
)

// Part is a part of the lab and how faithful it is.
type Part struct {
	Name     string `json:"name"`
	Fidelity string `json:"fidelity"` // real, stand-in or simulated
	Detail   string `json:"detail"`
}

// programInfo is an upstream program, as its build information describes it.
type programInfo struct {
	file, module, version string
}

// programNames are the upstream programs, in the order in which the status lists them.
var programNames = []string{
	plane.ProgramEtcd, "kube-apiserver", "kube-controller-manager", "kube-scheduler",
	"cluster-api", "cluster-api-bootstrap-provider-talos", "cluster-api-control-plane-provider-talos",
}

// readPrograms reads the build information of the programs in bin. Each is required.
func readPrograms(bin string) ([]programInfo, error) {
	infos := make([]programInfo, 0, len(programNames))
	for _, name := range programNames {
		info, err := buildinfo.ReadFile(filepath.Join(bin, name))
		if err != nil {
			return nil, fmt.Errorf("the lab's program %s (`go run ./cmd/bootstrap lab build` makes it): %w", name, err)
		}
		infos = append(infos, programInfo{file: name, module: info.Main.Path, version: info.Main.Version})
	}
	return infos, nil
}

// versionOf is the version that a program was built from.
func versionOf(programs []programInfo, file string) string {
	for _, p := range programs {
		if p.file == file {
			return p.version
		}
	}
	return ""
}

// parts are the parts of the lab.
func (lab *Lab) parts() []Part {
	var parts []Part
	versions := map[string]string{}
	for _, p := range lab.programInfo {
		versions[p.file] = p.module + " " + p.version
	}
	for _, p := range []struct{ name, file string }{
		{"etcd", plane.ProgramEtcd}, {"kube-apiserver", "kube-apiserver"},
		{"kube-controller-manager", "kube-controller-manager"}, {"kube-scheduler", "kube-scheduler"},
	} {
		parts = append(parts, Part{p.name, kubelet.Real, versions[p.file] + ", unmodified"})
	}
	for i, p := range lab.programs {
		if _, shadowed := kubelet.Match(lab.programs[:i], p.Image); shadowed {
			continue
		}
		parts = append(parts, imagePart(p, versions[p.Exec]))
	}
	time := "simulated delays are one or two seconds, the stand-ins poll 20 times as often, the rate limit's " +
		"hour has 3 minutes"
	if lab.cfg.Latency == RealLatency {
		time = "simulated delays are estimates of the real cloud's"
	}
	rescueSystem := "SSH on port 22, accepts only the commands of hcloudimages; downloads nothing, has no disk"
	if !lab.imageBuild.Possible {
		rescueSystem = "the step image cannot build an image, the lab creates its snapshot: " + lab.imageBuild.Reason
	}
	api := fmt.Sprintf("the API of %s over HTTP, and as api.hetzner.cloud through the proxy", lab.cloud.API())
	return append(parts,
		Part{"kubelet", kubelet.StandIn,
			"registers Nodes, runs Pods whose image is mapped as processes, serves their logs, and no exec"},
		Part{"other images", kubelet.Simulated, "are reported Ready, or complete, after a moment; no program runs"},
		Part{"Pod network", kubelet.Simulated,
			"Pods have no address; only the kube-apiserver reaches Services, through its egress selector"},
		Part{"Talos", kubelet.Simulated,
			"machine API with mutual TLS; etcd and the control plane that it starts are real"},
		Part{"Hetzner Cloud API", kubelet.Simulated, api},
		Part{"rescue system", kubelet.Simulated, rescueSystem},
		Part{"load balancers", kubelet.Simulated, "forward TCP to targets that accept connections"},
		Part{"firewalls", kubelet.Simulated, "are stored and shown; they filter no packet"},
		Part{"provider manifests", kubelet.Real, "of CAPI, CABPT and CACPPT: built from the modules of the programs"},
		Part{"other manifests and charts", kubelet.StandIn,
			"of CAPH, cert-manager, Cilium, hcloud-ccm and talos-ccm: see the notes"},
		Part{"time", kubelet.Simulated, time},
	)
}

// imagePart describes what runs for an image. version is that of a program in the lab's folder of programs.
func imagePart(p kubelet.Program, version string) Part {
	part := Part{Name: path.Base(p.Image), Fidelity: p.Fidelity,
		Detail: strings.Join(append([]string{p.Exec}, p.Prefix...), " ")}
	if version != "" {
		part.Detail = version + ", unmodified"
	}
	if p.Note != "" {
		part.Detail += "; " + p.Note
	}
	return part
}
