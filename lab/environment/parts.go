package environment

import (
	"cmp"
	"debug/buildinfo"
	"fmt"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/slipway-k8s/slipway/lab/kubelet"
	"github.com/slipway-k8s/slipway/lab/originals"
	"github.com/slipway-k8s/slipway/lab/plane"
)

// Part is a part of the lab and how faithful it is.
type Part struct {
	Name     string `json:"name"`
	Fidelity string `json:"fidelity"` // real, stand-in, simulated, or mapped: a program of --lab-images
	Detail   string `json:"detail"`
}

// programNames are the upstream programs of which a lab has one version.
var programNames = []string{
	plane.ProgramEtcd, "cluster-api-bootstrap-provider-talos", "cluster-api-control-plane-provider-talos",
}

// parts are the parts of the lab.
func (lab *Lab) parts() []Part {
	var parts []Part
	origins := map[string]string{}
	for _, p := range lab.programInfo {
		origins[p.File] = p.Origin()
	}
	parts = append(parts, Part{"etcd", kubelet.Real, origins[plane.ProgramEtcd] + ", unmodified"})
	parts = append(parts, setParts(lab.kubernetes, "servers", lab.kubernetes.Kind().Files...)...)
	parts = append(parts, lab.imageParts(origins)...)
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
	parts = append(parts,
		Part{"kubelet", kubelet.StandIn,
			"registers Nodes, runs Pods whose image is mapped as processes, serves their logs, and no exec"},
		lab.podPart(),
		Part{"other images", kubelet.Simulated, "are reported Ready, or complete, after a moment; no program runs"},
		Part{"Pod network", kubelet.Simulated,
			"the API shows no address of a Pod; only the kube-apiserver reaches Services, through its egress selector, and " +
				"Pods Gitea's, by their /etc/hosts and the Node; a probe that names KubePrism connects to it, one that names the " +
				"ClusterIP of the Service kubernetes to the load balancer"},
		Part{"Talos", kubelet.Simulated,
			"machine API with mutual TLS; etcd and the control plane that it starts are real"},
		Part{"Hetzner Cloud API", kubelet.Simulated, api},
		Part{"rescue system", kubelet.Simulated, rescueSystem},
		Part{"load balancers", kubelet.Simulated, "forward TCP to targets that accept connections"},
		Part{"firewalls", kubelet.Simulated, "are stored and shown; they filter no packet"},
		Part{"provider manifests", kubelet.Real,
			"of CAPI, CABPT and CACPPT, as the lab offers them: built from the modules of the programs' versions"},
	)
	parts = append(parts, lab.gitOpsParts()...)
	return append(append(parts, lab.manifestParts()...), Part{"time", kubelet.Simulated, time})
}

// imageParts are what runs for images. origins says where programs in the lab's folder of programs come from.
func (lab *Lab) imageParts(origins map[string]string) (parts []Part) {
	counting := slices.DeleteFunc(slices.Clone(lab.programs), func(p kubelet.Program) bool {
		return p.When != nil && !p.When()
	})
	var others []string // stand-ins of projects whose released programs run
	for i, p := range counting {
		if _, shadowed := kubelet.Match(counting[:i], p.Image+":"+p.Tag); shadowed || lab.unbuiltFlux(p) {
			continue
		}
		if p.Tag == "" && slices.ContainsFunc(counting[:i], func(o kubelet.Program) bool { return o.Image == p.Image }) {
			others = append(others, path.Base(p.Image))
			continue
		}
		if p.Folder != nil {
			parts = append(parts, setParts(lab.core, "Pods", path.Base(p.Image))...)
			continue
		}
		file := p.Exec
		if p.When != nil { // the lab's binary prepares it
			file = lab.giteaProgram()
		}
		parts = append(parts, imagePart(p, cmp.Or(origins[p.Exec], builtFrom(file))))
	}
	if others != nil {
		parts = append(parts, Part{"other versions", kubelet.StandIn, "of " + strings.Join(others, ", ") +
			": Pods whose image has another tag than the released manifests and charts name"})
	}
	return parts
}

// manifestParts are the manifests and charts that the lab offers besides those of CAPI, CABPT and CACPPT.
func (lab *Lab) manifestParts() (parts []Part) {
	var standIns []string
	for _, project := range []struct{ key, name string }{{originals.CAPH, "CAPH"}, {originals.CertManager, "cert-manager"},
		{"", "Cilium"}, {originals.HCloudCCM, "hcloud-ccm"}, {originals.TalosCCM, "talos-ccm"}, {"", "the add-ons hcloud-csi, " +
			"cluster-autoscaler, metrics-server and gitea"}} {
		releases := lab.cfg.Originals.Of(project.key)
		if len(releases) == 0 {
			standIns = append(standIns, project.name)
		}
		for _, o := range releases {
			what := "manifest"
			if o.Chart != nil {
				what = "chart"
			}
			parts = append(parts, Part{project.name + " " + what, kubelet.Real,
				fmt.Sprintf("as released: %s of %s", o.Version, o.Source)})
		}
	}
	return append(parts, Part{"other manifests and charts", kubelet.StandIn,
		"of " + strings.Join(standIns, ", ") + ", as the lab offers them: see the notes"})
}

// podPart says what Pods have of their own.
func (lab *Lab) podPart() Part {
	if lab.sandboxes == nil {
		return Part{"Pods", kubelet.Simulated, "processes that share the lab's network and see all files of the user: " +
			lab.shared + "; " + confined() + "; a program with fixed ports or paths does not run"}
	}
	return Part{"Pods", kubelet.StandIn, "each has a network namespace of its own and each container a read-only root " +
		"with its program, its volumes, /tmp, /run, /dev and /proc: of the machine's files only libraries and certificate " +
		"authorities; " + confined() + "; the kernel, users and resources are shared"}
}

// confined says what the processes of a lab lack.
func confined() string {
	if runtime.GOOS != "linux" {
		return "they have the privileges of the user"
	}
	return "they have no_new_privs, a seccomp filter and no capability but NET_BIND_SERVICE"
}

// builtFrom is the module and version in the build information of an executable; empty where it has none.
func builtFrom(file string) string {
	if !filepath.IsAbs(file) {
		return ""
	}
	info, err := buildinfo.ReadFile(file)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(info.Main.Path + " " + strings.Trim(info.Main.Version, "()"))
}

// imagePart describes what runs for an image. origin is that of a program in the lab's folder of programs, or what an
// executable's build information says.
func imagePart(p kubelet.Program, origin string) Part {
	if p.Tag != "" { // a released one, whose note says all of it
		return Part{path.Base(p.Image), p.Fidelity, p.Note}
	}
	part := Part{Name: path.Base(p.Image), Fidelity: p.Fidelity,
		Detail: strings.Join(append([]string{p.Exec}, p.Prefix...), " ")}
	switch {
	case origin != "" && filepath.IsAbs(p.Exec):
		part.Detail += ", built from " + origin
	case origin != "":
		part.Detail = origin + ", unmodified"
	}
	if p.Note != "" {
		part.Detail += "; " + p.Note
	}
	return part
}
