package config

import (
	"strings"
	"testing"
)

func TestGitOps(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(*Config)
		field  string // empty: nothing is wrong
		says   string
	}{
		"token":     {func(c *Config) { c.GitTokenFile = "token" }, "", ""},
		"public":    {func(*Config) {}, "", ""},
		"in a lab":  {func(c *Config) { c.GitURL = "" }, "", ""},
		"other":     {func(c *Config) { c.GitOps = "argo" }, "gitops", "write flux"},
		"version":   {func(c *Config) { c.FluxVersion = "2.7.3" }, "fluxVersion", "v2.7.3"},
		"major":     {func(c *Config) { c.FluxVersion = "v3.0.0" }, "fluxVersion", "is not v2"},
		"too new":   {func(c *Config) { c.FluxVersion = "v2.9.5" }, "fluxVersion", "Kubernetes 1.33 and later"},
		"two ways":  {func(c *Config) { c.GitTokenFile, c.GitTokenCommand = "a", "b" }, "gitTokenFile", "keep one"},
		"scp":       {func(c *Config) { c.GitURL = "git@example.com:fleet.git" }, "gitUrl", "ssh://git@host"},
		"no path":   {func(c *Config) { c.GitURL = "https://example.com" }, "gitUrl", "is not the address"},
		"password":  {func(c *Config) { c.GitURL = "https://u:secret@example.com/a.git" }, "gitUrl", "gitTokenFile"},
		"no key":    {func(c *Config) { c.GitURL = "ssh://git@example.com/a.git" }, "gitUrl", "gitKnownHostsFile"},
		"no user":   {func(c *Config) { c.GitURL = "ssh://example.com/a.git" }, "gitUrl", "ssh://git@example.com:22/a.git"},
		"wrong key": {func(c *Config) { c.GitKeyFile = "key" }, "gitUrl", "is not reached by SSH"},
		"ssh": {func(c *Config) {
			c.GitURL, c.GitKeyFile, c.GitKnownHostsFile = "ssh://git@example.com/a.git", "key", "hosts"
		}, "", ""},
		"registry":             {func(c *Config) { c.GitURL, c.OCITag = "oci://ghcr.io/example/fleet", "v1.2.0" }, "", ""},
		"registry with a port": {func(c *Config) { c.GitURL = "oci://127.0.0.1:5000/fleet" }, "", ""},
		"registry alone":       {func(c *Config) { c.GitURL = "oci://ghcr.io" }, "gitUrl", "oci://registry/path"},
		"tag in the address":   {func(c *Config) { c.GitURL = "oci://ghcr.io/a/b:v1" }, "gitUrl", "ociTag is the tag"},
		"digest":               {func(c *Config) { c.GitURL = "oci://ghcr.io/a/b@sha256:00" }, "gitUrl", "without a tag"},
		"registry's password":  {func(c *Config) { c.GitURL = "oci://u:secret@ghcr.io/a" }, "gitUrl", "gitTokenFile"},
		"registry by a key": {func(c *Config) { c.GitURL, c.GitKeyFile = "oci://ghcr.io/a/b", "key" }, "gitUrl",
			"name a token"},
		"no tag":  {func(c *Config) { c.GitURL, c.OCITag = "oci://ghcr.io/a/b", "" }, "ociTag", "write it like latest"},
		"bad tag": {func(c *Config) { c.GitURL, c.OCITag = "oci://ghcr.io/a/b", "a/b" }, "ociTag", "is no tag"},
		"branch of a registry": {func(c *Config) { c.GitURL, c.GitBranch = "oci://ghcr.io/a/b", "next" }, "gitBranch",
			"name the tag"},
		"tag of a branch": {func(c *Config) { c.OCITag = "v1" }, "ociTag", "name the branch"},
		"registry, two ways": {func(c *Config) {
			c.GitURL, c.GitTokenFile, c.GitTokenCommand = "oci://ghcr.io/a/b", "a", "b"
		}, "gitTokenFile", "keep one"},
		"branch":   {func(c *Config) { c.GitBranch = "a b" }, "gitBranch", "no name of a branch"},
		"outside":  {func(c *Config) { c.GitPath = "clusters/../../x" }, "gitPath", "outside of the repository"},
		"absolute": {func(c *Config) { c.GitPath = "/clusters" }, "gitPath", "outside of the repository"},
		"mirror":   {func(c *Config) { c.FluxRepository = "https://mirror.example.com/flux" }, "", ""},
		"folder":   {func(c *Config) { c.FluxRepository = "/mirror" }, "", ""},
		"relative": {func(c *Config) { c.FluxRepository = "mirror" }, "fluxRepository", "absolute path"},
		"unused as well": {func(c *Config) {
			c.GitOps, c.GitURL, c.GitTokenFile, c.GitTokenCommand = "", "x", "a", "b"
		}, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			c := configOf(t, "guide")
			c.GitOps, c.GitURL = GitOpsFlux, "https://example.com/fleet.git"
			tt.change(&c)
			found := c.Validate()
			switch {
			case tt.field == "" && len(found) > 0:
				t.Errorf("refused: %v", found)
			case tt.field == "":
			case len(found) != 1 || found[0].Field != tt.field || !strings.Contains(found[0].Error(), tt.says):
				t.Errorf("found %v; want %s, %q", found, tt.field, tt.says)
			case strings.Contains(found[0].Error(), "secret"):
				t.Error("the error has the password")
			}
		})
	}
}

func TestGitFolder(t *testing.T) {
	c := Defaults()
	if c.GitFolder() != "clusters/k8s" {
		t.Errorf("by default %s", c.GitFolder())
	}
	if c.GitPath = "./fleet/one/"; c.GitFolder() != "fleet/one" {
		t.Errorf("%s is %s", c.GitPath, c.GitFolder())
	}
	if c.MissingGitURL() != nil {
		t.Error("without GITOPS a repository is missing")
	}
	if c.GitOps = GitOpsFlux; c.MissingGitURL() == nil {
		t.Error("with GITOPS no repository is missing")
	}
}
