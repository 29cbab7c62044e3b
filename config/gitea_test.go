package config

import (
	"slices"
	"strings"
	"testing"
	"time"
)

func TestGitea(t *testing.T) {
	no := false
	for name, tt := range map[string]struct {
		change func(*Config)
		field  string // of the first error; empty: there is none
		says   string
	}{
		"on":           {change: func(c *Config) { c.Gitea = "true" }},
		"as an add-on": {change: func(c *Config) { c.Addons = Addons{{Name: AddonGitea}} }},
		"both":         {change: func(c *Config) { c.Gitea, c.Addons = "true", Addons{{Name: AddonGitea}} }},
		"off":          {change: func(c *Config) { c.Gitea, c.GiteaTokenScopes = "false", "" }},
		"neither":      {change: func(c *Config) { c.Gitea = "yes" }, field: "gitea", says: "write true"},
		"contradiction": {change: func(c *Config) { c.Gitea, c.Addons = "false", Addons{{Name: AddonGitea}} },
			field: "gitea"},
		"namespace": {change: func(c *Config) { c.Addons = Addons{{Name: AddonGitea, Namespace: "git"}} },
			field: "addons[0].namespace"},
		"not waited for": {change: func(c *Config) { c.Addons = Addons{{Name: AddonGitea, Wait: &no}} },
			field: "addons[0].wait"},
		"no scope": {change: func(c *Config) { c.Gitea, c.GiteaTokenScopes = "true", "" }, field: "giteaTokenScopes"},
		"odd scope": {change: func(c *Config) { c.Gitea, c.GiteaTokenScopes = "true", "read:repository,root" },
			field: "giteaTokenScopes", says: `"root"`},
		"as long as the release": {change: func(c *Config) { c.Gitea, c.GiteaTimeout = "true", c.ReleaseTimeout },
			field: "giteaTimeout", says: "15m"},
		"longer than its own time": {change: func(c *Config) {
			c.Addons = Addons{{Name: AddonGitea, Timeout: Duration(4 * time.Minute)}}
		}, field: "giteaTimeout", says: "4m"},
		"long, and off": {change: func(c *Config) { c.GiteaTimeout = c.ReleaseTimeout }},
		"a cycle": {change: func(c *Config) {
			c.Gitea, c.Addons = "true", Addons{{Name: AddonCSI, After: []string{AddonGitea}}}
		}, field: "addons[0].after", says: "cycle"},
		"after it": {change: func(c *Config) {
			c.Gitea, c.Addons = "true", Addons{{Name: AddonMetricsServer, After: []string{AddonGitea}}}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			c := Defaults()
			tt.change(&c)
			got := c.Validate()
			if tt.field == "" {
				if len(got) > 0 {
					t.Errorf("refused: %v", got)
				}
				return
			}
			if len(got) == 0 || got[0].Field != tt.field || !strings.Contains(got[0].Error(), tt.says) {
				t.Errorf("got %v; want an error of %s with %q", got, tt.field, tt.says)
			}
		})
	}
}

// The repository in Gitea is Flux's where no other one is configured; what contradicts that is refused.
func TestGitInGitea(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(*Config)
		other  bool   // another repository than Gitea's is read
		field  string // of the error; empty: there is none
	}{
		"by default":      {change: func(*Config) {}},
		"as an add-on":    {change: func(c *Config) { c.Gitea, c.Addons = "", Addons{{Name: AddonGitea}} }},
		"another":         {change: func(c *Config) { c.GitURL, c.GitTokenFile = "https://example.com/a.git", "token" }, other: true},
		"without Flux":    {change: func(c *Config) { c.GitOps, c.GiteaRepository = "", "a/b" }, other: true},
		"name":            {change: func(c *Config) { c.GiteaRepository = "a/b" }, field: "giteaRepository"},
		"no name":         {change: func(c *Config) { c.GiteaRepository = "" }, field: "giteaRepository"},
		"dots":            {change: func(c *Config) { c.GiteaRepository = ".." }, field: "giteaRepository"},
		"end":             {change: func(c *Config) { c.GiteaRepository = "fleet.git" }, field: "giteaRepository"},
		"token file":      {change: func(c *Config) { c.GitTokenFile = "token" }, field: "gitTokenFile"},
		"token command":   {change: func(c *Config) { c.GitTokenCommand = "pass" }, field: "gitTokenCommand"},
		"key":             {change: func(c *Config) { c.GitKeyFile = "key" }, field: "gitKeyFile"},
		"write":           {change: func(c *Config) { c.GiteaTokenScopes = "write:repository" }},
		"no right":        {change: func(c *Config) { c.GiteaTokenScopes = "read:user" }, field: "giteaTokenScopes"},
		"public only":     {change: func(c *Config) { c.GiteaTokenScopes = "read:repository,public-only" }, field: "giteaTokenScopes"},
		"no right needed": {change: func(c *Config) { c.GitURL, c.GiteaTokenScopes = "https://example.com/a.git", "read:user" }, other: true},
	} {
		t.Run(name, func(t *testing.T) {
			c := Defaults()
			c.Gitea, c.GitOps = "true", GitOpsFlux
			tt.change(&c)
			if c.GitInGitea() == tt.other || c.MissingGitURL() != nil {
				t.Errorf("in Gitea: %v; %v", c.GitInGitea(), c.MissingGitURL())
			}
			got := c.Validate()
			if tt.field == "" && len(got) > 0 || tt.field != "" && (len(got) != 1 || got[0].Field != tt.field) {
				t.Errorf("got %v; want an error of %q", got, tt.field)
			}
		})
	}
}

// Gitea is installed behind hcloud-csi, which makes its volume, and before what is after it.
func TestGiteaInstallOrder(t *testing.T) {
	c := Defaults()
	c.Gitea = "true"
	if c.GiteaKept() {
		t.Error("without hcloud-csi it has a volume")
	}
	c.Addons = Addons{{Name: AddonMetricsServer, After: []string{AddonGitea}}, {Name: AddonCSI}}
	var order []string
	for _, a := range c.InstallOrder() {
		order = append(order, a.Name)
	}
	if want := []string{AddonCSI, AddonGitea, AddonMetricsServer}; !slices.Equal(order, want) || !c.GiteaKept() {
		t.Errorf("order %v; want %v", order, want)
	}
	if len(c.Addons) != 2 || c.AddonNames() != "metrics-server,hcloud-csi,gitea" {
		t.Errorf("the configured add-ons are %v, all are %s", c.Addons, c.AddonNames())
	}
}
