package kubelet

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/slipway-k8s/slipway/lab/gitea"
	"github.com/slipway-k8s/slipway/lab/programs"
)

// Program maps an image to an executable that runs in its place.
//
// Args and the values of Env may hold placeholders:
//
//	{kubeconfig}  kubeconfig file with the token of the Pod's service account
//	{namespace}   namespace of the Pod
//	{pod}         name of the Pod
//	{node}        name of the Node
//	{tag}         tag of the container's image; empty where it has none
//	{port:9443}   the port to listen on for this port of the container, at 127.0.0.1:{port:9443}
//	{reach:9090}  host and port by which processes of other Pods, and the lab, reach this port of the container
//	{dir:/path}   folder of the volume mounted at /path, or above it
//	{ca}          file with the certificate authorities that the lab's TLS servers are signed with
//	{proxy}       URL of the lab's HTTPS proxy
//
// Where a Pod has a network of its own, {port:9443} is 9443, 127.0.0.1:{port:9443} is :9443 (all addresses of the Pod),
// and {dir:/path} is /path. Elsewhere the port is a free one, the folder is where the lab keeps the volume, and a probe
// reaches the process only on a port that a placeholder asks for.
type Program struct {
	// Image is the image without tag and digest, a pattern of path.Match.
	Image string
	// Tag is the only tag of the image that it runs for; empty: every one.
	Tag string
	// Exec is an absolute path, a program in the lab's folder of programs, or "lab" for the lab's own binary.
	Exec string
	// Folder is the folder of Exec for a tag of the image; nil: the lab's folder of programs.
	Folder func(tag string) (string, error)
	// Prefix goes before the container's arguments: a sub command.
	Prefix []string
	// Args go after the container's arguments, so that of a flag given twice these win.
	Args []string
	// Env goes over the container's environment.
	Env map[string]string
	// NoContainerArgs leaves the container's own arguments out.
	NoContainerArgs bool
	// Fidelity is "real" for an unmodified program, "stand-in" for one that behaves like it, and "mapped" for one of
	// which only the mapping is known. The status shows it.
	Fidelity string
	// Note is a note for the status: how the program differs from the original, for example.
	Note string
	// When says whether the program is in the mapping at the moment; nil: always.
	When func() bool
	// Reads are files and folders of the machine that the program reads, besides its executable.
	Reads []string
	// Tools says that the program runs programs of the machine, as git.
	Tools bool
	// Serves are the Services of the Pod's namespace whose names lead the processes of other Pods to this container, each
	// with the container's port, which is the Service's, too. It takes a Pod with a network of its own.
	Serves map[string]int32
}

// Files are the executables that programs name by a path.
func Files(all []Program) (files []string) {
	for _, p := range all {
		if path.IsAbs(p.Exec) {
			files = append(files, p.Exec)
		}
	}
	return files
}

// What a container is, as the status says it.
const (
	Real      = "real"
	StandIn   = "stand-in"
	Mapped    = "mapped"
	Simulated = "simulated"
)

// DefaultPrograms returns the built-in mapping of a lab: UpstreamPrograms, and the stand-ins, which are sub commands of
// the lab's binary. A mapping of one's own goes before it; the first match counts.
func DefaultPrograms(core *programs.Sets) []Program {
	standIn := func(image, command string, args ...string) Program {
		return Program{Image: image, Exec: labProgram, Prefix: []string{command}, Args: args, Fidelity: StandIn}
	}
	return append(UpstreamPrograms(core),
		standIn("ghcr.io/syself/caph", "caph",
			"--leader-elect=false",
			"--metrics-bind-address=0",
			"--health-probe-bind-address=127.0.0.1:{port:9440}",
			"--webhook-port={port:9443}",
			"--webhook-cert-dir={dir:/tmp/k8s-webhook-server/serving-certs}",
			"--follow={tag}"),
		standIn("quay.io/jetstack/cert-manager-controller", "cert-manager",
			"--leader-elect=false",
			"--metrics-listen-address=0",
			"--healthz-listen-address=127.0.0.1:{port:9403}"),
		// Of the two below several may run on one machine: one a cluster, one a Node. Without a port of its own
		// each would take that of the library.
		standIn("docker.io/hetznercloud/hcloud-cloud-controller-manager", "hcloud-ccm",
			"--kubeconfig={kubeconfig}", "--secure-port={port:10258}"),
		noted("its API of access tokens, with the answers of "+gitea.Version,
			standIn(giteaImage, "gitea", "--listen=127.0.0.1:{port:3000}", "--data={dir:/data}")),
		standIn("ghcr.io/siderolabs/talos-cloud-controller-manager", "talos-ccm",
			"--kubeconfig={kubeconfig}", "--secure-port={port:50258}", "--cloud-config={dir:/etc/talos}/ccm-config.yaml"))
}

func noted(note string, p Program) Program {
	p.Note = note
	return p
}

// UpstreamPrograms maps the images of the three provider managers to the unmodified programs in the folder of programs,
// that of Cluster API's core to the program of the version that the image's tag names.
//
// The flags are those of the managers' main.go (Cluster API v1.10.10 and v1.13.6, CABPT v0.6.12, CACPPT v0.5.13).
// Leader election is off: it would delay a manager that starts again by the time of its lease.
func UpstreamPrograms(core *programs.Sets) []Program {
	manager := func(image, exec string, more ...string) Program {
		return Program{
			Image: image, Exec: exec, Fidelity: Real,
			Args: append([]string{
				"--kubeconfig={kubeconfig}",
				"--webhook-port={port:9443}",
				"--webhook-cert-dir={dir:/tmp/k8s-webhook-server/serving-certs}",
				"--health-addr=127.0.0.1:{port:9440}",
				"--diagnostics-address=127.0.0.1:{port:8443}",
			}, more...),
		}
	}
	capi := manager("registry.k8s.io/cluster-api/cluster-api-controller", "cluster-api", "--leader-elect=false")
	capi.Folder = func(tag string) (string, error) {
		set, err := core.Choose(tag)
		return set.Bin, err
	}
	return []Program{
		capi,
		manager("ghcr.io/siderolabs/cluster-api-talos-controller",
			"cluster-api-bootstrap-provider-talos", "--enable-leader-election=false"),
		manager("ghcr.io/siderolabs/cluster-api-control-plane-talos-controller",
			"cluster-api-control-plane-provider-talos", "--enable-leader-election=false"),
	}
}

// FluxPrograms maps the images of Flux's controllers to the unmodified programs in a folder.
//
// The flags are those of Flux v2.7. Other Pods cannot resolve the name of the Service by which the source-controller
// has its artifacts fetched, so that the address is another one. There is no notification-controller to send events
// to.
func FluxPrograms(bin string) []Program {
	controller := func(name string, more ...string) Program {
		return Program{
			Image: "ghcr.io/fluxcd/" + name, Exec: filepath.Join(bin, name), Fidelity: Real,
			Args: append([]string{
				"--enable-leader-election=false",
				"--events-addr=",
				"--metrics-addr=127.0.0.1:{port:8080}",
				"--health-addr=127.0.0.1:{port:9440}",
			}, more...),
		}
	}
	return []Program{
		controller("source-controller", "--storage-addr=127.0.0.1:{port:9090}", "--storage-path={dir:/data}",
			"--storage-adv-addr={reach:9090}"),
		controller("kustomize-controller"),
		controller("helm-controller"),
	}
}

// CommandProgram maps Slipway's own image to the command that a fleet is rehearsed with, which it writes into the lab's
// folder. It counts once it is there. It reads the manifests that the lab offers.
func CommandProgram(file, repository string) Program {
	return Program{
		Image: "slipway.dev/slipway", Exec: file, Fidelity: Real, Note: "the command that the fleet was applied with",
		Reads: []string{repository},
		When:  func() bool { _, err := os.Stat(file); return err == nil },
	}
}

// giteaImage is Gitea's image.
const giteaImage = "docker.gitea.com/gitea"

// GiteaProgram maps Gitea's image to the unmodified program in a folder, which counts while used says so. The lab's
// binary prepares it, as the init containers of Gitea's chart do.
func GiteaProgram(bin string, used func() bool) Program {
	return Program{
		Image: giteaImage, Exec: labProgram, Prefix: []string{"gitea-server"}, NoContainerArgs: true, Fidelity: Real,
		Args: []string{"--program=" + filepath.Join(bin, "gitea"), "--static=" + filepath.Join(bin, "static"),
			"--listen=127.0.0.1:{port:3000}", "--data={dir:/data}", "--config={dir:/env-to-ini-mounts/inlines}"},
		Note: "prepared by the lab; without the files of its pages, which its module does not have",
		When: used, Reads: []string{bin}, Tools: true, Serves: map[string]int32{"gitea-http": 3000},
	}
}

// labProgram is the Exec that means the lab's own binary.
const labProgram = "lab"

// Validate says what is wrong with a mapping, nil if nothing is.
func (p Program) Validate() error {
	switch {
	case p.Image == "":
		return fmt.Errorf("image is missing: name the image that the program runs for, without tag and digest")
	case p.Exec == "":
		return fmt.Errorf(
			"exec is missing: name the program, as an absolute path or as a file of the lab's folder of programs")
	case slices.ContainsFunc(p.Reads, func(read string) bool { return !path.IsAbs(read) }):
		return fmt.Errorf("reads %q: want absolute paths", p.Reads)
	case !path.IsAbs(p.Exec) && strings.Contains(p.Exec, "/"):
		return fmt.Errorf("exec %q is a relative path: give an absolute one, or only the name of a file in the lab's "+
			"folder of programs", p.Exec)
	}
	if _, err := path.Match(p.Image, ""); err != nil {
		return fmt.Errorf("image %q is not a pattern of path.Match: %w", p.Image, err)
	}
	if bare := bareImage(p.Image); bare != p.Image {
		return fmt.Errorf("image %q has a tag or a digest, but a mapping covers all versions: write %q", p.Image, bare)
	}
	for _, text := range p.texts() {
		if err := checkPlaceholders(text); err != nil {
			return err
		}
	}
	return nil
}

// texts returns everything that may hold placeholders.
func (p Program) texts() []string {
	texts := append([]string{}, p.Args...)
	for _, v := range p.Env {
		texts = append(texts, v)
	}
	return texts
}

// Match returns the first program for an image, which may carry a tag and a digest.
func Match(all []Program, image string) (Program, bool) {
	bare, tag := SplitImage(image)
	full := qualifiedImage(bare)
	for _, p := range all {
		if p.Tag != "" && p.Tag != tag || p.When != nil && !p.When() {
			continue
		}
		for _, candidate := range []string{bare, full} {
			if ok, err := path.Match(p.Image, candidate); err == nil && ok {
				return p, true
			}
		}
	}
	return Program{}, false
}

// bareImage cuts tag and digest off.
func bareImage(image string) string {
	bare, _ := SplitImage(image)
	return bare
}

// tagOf is an image's tag; empty where it has none.
func tagOf(image string) string {
	_, tag := SplitImage(image)
	return tag
}

// SplitImage takes an image's reference apart; tag is empty where it has none.
func SplitImage(image string) (bare, tag string) {
	image, _, _ = strings.Cut(image, "@")
	if i := strings.LastIndex(image, ":"); i > strings.LastIndex(image, "/") {
		return image[:i], image[i+1:]
	}
	return image, ""
}

// qualifiedImage names the registry that container runtimes take for granted.
func qualifiedImage(bare string) string {
	host, _, nested := strings.Cut(bare, "/")
	switch {
	case !nested:
		return "docker.io/library/" + bare
	case strings.ContainsAny(host, ".:") || host == "localhost":
		return bare
	default:
		return "docker.io/" + bare
	}
}
