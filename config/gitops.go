package config

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"path"
	"slices"
	"strings"

	"github.com/blang/semver/v4"
	"github.com/google/go-containerregistry/pkg/name"

	"github.com/slipway-k8s/slipway/internal/client/kube"
)

// GitOpsFlux is the value of GitOps with which Flux applies a Git repository to the cluster.
const GitOpsFlux = "flux"

// gitOpsChoices are the values of GitOps; empty: nothing applies a Git repository.
var gitOpsChoices = []string{GitOpsFlux}

const (
	// DefaultFluxVersion is the newest release of Flux seen for Kubernetes 1.32 as well as for 1.33: those after v2.7 ask
	// for 1.33 and later.
	DefaultFluxVersion = "v2.7.3"
	// defaultFluxRepository has a folder for each release, in which install.yaml is.
	defaultFluxRepository = "https://github.com/fluxcd/flux2/releases/download"
	defaultGitBranch      = "main"
	defaultGitUser        = "git"
	defaultOCITag         = "latest"
	ociScheme             = "oci://"
)

// fluxKubernetes is the oldest minor of Kubernetes 1 that a minor of Flux 2 supports, as its command checks it.
var fluxKubernetes = map[uint64]uint64{6: 31, 7: 32, 9: 33}

// GitFolder is the folder of the Git repository that the cluster reads: GitPath, or clusters/<name>.
func (c Config) GitFolder() string {
	if c.GitPath == "" {
		return "clusters/" + c.ClusterName
	}
	return path.Clean(c.GitPath)
}

// GitOverSSH says whether the Git repository is reached by SSH, with a deploy key.
func (c Config) GitOverSSH() bool { return strings.HasPrefix(c.GitURL, "ssh://") }

// FromRegistry says whether Flux reads OCI artifacts of a registry, in place of a Git repository.
func (c Config) FromRegistry() bool { return strings.HasPrefix(c.GitURL, ociScheme) }

// Registry is the registry of FromRegistry, as credentials for it are filed.
func (c Config) Registry() (string, error) {
	repository, err := name.NewRepository(strings.TrimPrefix(c.GitURL, ociScheme), name.StrictValidation)
	if err != nil {
		return "", fmt.Errorf("read gitUrl: %w", err)
	}
	return repository.RegistryStr(), nil
}

// MissingGitURL is what is wrong where Flux is configured without a repository, in Gitea or elsewhere; nil: nothing is.
// It is no part of Validate, because a lab has a repository.
func (c Config) MissingGitURL() error {
	if c.GitOps == "" || c.GitURL != "" || c.GitInGitea() {
		return nil
	}
	return FieldError{Field: "gitUrl", Problem: "is empty while gitops is " + c.GitOps,
		Hint: "name the repository: GIT_URL=https://host/path.git, ssh://git@host/path.git or oci://registry/path; or have " +
			"one in the cluster: GITEA=true"}
}

func (v *Findings) gitOps(c Config) {
	if c.GitOps != "" && !slices.Contains(gitOpsChoices, c.GitOps) {
		v.add("gitops", c.GitOps, "is nothing that applies a Git repository", "write "+strings.Join(gitOpsChoices, ", ")+
			", or leave it empty")
	}
	if c.GitOps == "" {
		return
	}
	v.flux(c)
	if c.FromRegistry() {
		v.gitCredentials(c)
		v.oci(c)
	} else {
		v.gitURL(c)
	}
	if c.GitURL != "" && !c.FromRegistry() && c.OCITag != defaultOCITag {
		v.addPair("ociTag", "gitUrl", c.OCITag, "is the tag of an OCI artifact, and gitUrl is a Git repository",
			"name the branch: gitBranch")
	}
	if c.GitBranch == "" || strings.ContainsAny(c.GitBranch, " ~^:?*[\\") || strings.HasPrefix(c.GitBranch, "-") {
		v.add("gitBranch", c.GitBranch, "is no name of a branch", "write it like main")
	}
	if clean := path.Clean(c.GitPath); c.GitPath != "" && (path.IsAbs(clean) || clean == ".." ||
		strings.HasPrefix(clean, "../")) {
		v.add("gitPath", c.GitPath, "is outside of the repository", "write a folder of it like clusters/"+c.ClusterName)
	}
}

func (v *Findings) flux(c Config) {
	flux, ok := v.version("fluxVersion", c.FluxVersion, "v")
	if ok && flux.Major != 2 {
		v.add("fluxVersion", c.FluxVersion, "is not v2", "the steps know the API of Flux v2")
		return
	}
	oldest, known := fluxKubernetes[flux.Minor]
	kubernetes, err := semver.ParseTolerant(c.KubernetesVersion)
	if ok && known && err == nil && kubernetes.Minor < oldest {
		v.addPair("fluxVersion", "kubernetesVersion", c.FluxVersion, "is for Kubernetes 1."+fmt.Sprint(oldest)+
			" and later, and kubernetesVersion is "+c.KubernetesVersion, "choose "+DefaultFluxVersion+
			", or a newer Kubernetes")
	}
	u, err := url.Parse(c.FluxRepository)
	if err != nil || u.Scheme != "" && (u.Scheme != "https" && u.Scheme != "http" || u.Host == "") ||
		u.Scheme == "" && !path.IsAbs(c.FluxRepository) {
		v.add("fluxRepository", c.FluxRepository, "is neither an address nor an absolute path", "write https://host/path or "+
			"/folder: below it is a folder for each version, with install.yaml")
	}
}

// gitCredentials checks that there is one way to read them.
func (v *Findings) gitCredentials(c Config) {
	if given(c.GitTokenFile, c.GitTokenCommand, c.GitKeyFile) > 1 {
		v.add("gitTokenFile", "…", "and gitTokenCommand and gitKeyFile are more than one", "keep one of them")
	}
}

// oci checks the address and the tag of OCI artifacts. The address is not repeated where it has a password.
func (v *Findings) oci(c Config) {
	address := strings.TrimPrefix(c.GitURL, ociScheme)
	_, err := name.NewRepository(address, name.StrictValidation)
	switch {
	case strings.Contains(address, "@") && !strings.Contains(address, "@sha256:"):
		v.add("gitUrl", "…", "has a user or a password in it", "write the address without, and name gitTokenFile or "+
			"gitTokenCommand; gitUser is the user")
	case err != nil:
		v.add("gitUrl", c.GitURL, "is not the address of a repository of a registry", "write oci://registry/path, without a "+
			"tag: ociTag is the tag")
	case c.GitKeyFile != "":
		v.addPair("gitUrl", "gitKeyFile", c.GitURL, "is a registry, and gitKeyFile is a deploy key of a Git repository",
			"name a token: gitTokenFile or gitTokenCommand")
	default:
		if _, err := name.NewTag(address+":"+c.OCITag, name.StrictValidation); err != nil || c.OCITag == "" {
			v.add("ociTag", c.OCITag, "is no tag of an OCI artifact", "write it like latest or v1.2.0")
		}
	}
	if c.GitBranch != defaultGitBranch {
		v.addPair("gitBranch", "gitUrl", c.GitBranch, "has no meaning for a registry", "name the tag: ociTag")
	}
}

// ParseGitURL reads the address of a Git repository, as Flux and git take it. Its errors are FieldErrors of gitUrl,
// and do not repeat an address that has a password in it.
func ParseGitURL(address string) (*url.URL, error) {
	bad := func(shown, problem, hint string) (*url.URL, error) {
		return nil, FieldError{Field: "gitUrl", Value: kube.WithoutCredentials(shown), Problem: problem, Hint: hint}
	}
	u, err := url.Parse(address)
	if err != nil || !slices.Contains([]string{"https", "http", "ssh"}, u.Scheme) || u.Host == "" || u.Path == "" ||
		u.RawQuery != "" || u.Fragment != "" {
		return bad(address, "is not the address of a Git repository that Flux takes",
			"write https://host/path.git, ssh://git@host/path.git or oci://registry/path")
	}
	_, password := u.User.Password()
	switch {
	case password || u.Scheme != "ssh" && u.User != nil:
		return bad("…", "has a user or a password in it", "write the address without, and name gitTokenFile or "+
			"gitTokenCommand; gitUser is the user")
	case u.Scheme == "ssh" && u.User.Username() == "":
		return bad(address, "names no user", "write ssh://git@"+net.JoinHostPort(u.Hostname(), "22")+u.Path)
	}
	return u, nil
}

// gitURL checks the repository's address together with what it is read with. The address is not repeated where it has a
// password.
func (v *Findings) gitURL(c Config) {
	v.gitCredentials(c)
	if c.GitURL == "" {
		return
	}
	u, err := ParseGitURL(c.GitURL)
	if err != nil {
		bad, _ := errors.AsType[FieldError](err)
		v.Errs = append(v.Errs, bad)
		return
	}
	switch {
	case u.Scheme == "ssh" && (c.GitKeyFile == "" || c.GitKnownHostsFile == ""):
		v.addPair("gitUrl", "gitKeyFile", c.GitURL, "is reached by SSH, and gitKeyFile or gitKnownHostsFile is empty",
			"name the file of a deploy key, and a file with the host's public keys: ssh-keyscan "+u.Hostname())
	case u.Scheme != "ssh" && c.GitKeyFile != "":
		v.addPair("gitUrl", "gitKeyFile", c.GitURL, "is not reached by SSH, and gitKeyFile is a deploy key",
			"write the address as ssh://git@host/path.git, or name a token")
	}
}
