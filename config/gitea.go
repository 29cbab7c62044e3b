package config

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// Names in the cluster of what belongs to the add-on gitea.
const (
	AddonGitea = "gitea"
	// GiteaNamespace is where Gitea and its Secrets are.
	GiteaNamespace = "gitea"
	// GiteaAdminSecret has the name and the password of Gitea's administrator, which the chart reads.
	GiteaAdminSecret = "gitea-admin"
	// GiteaTokenSecret has Gitea's address and the token that its consumers read.
	GiteaTokenSecret = "gitea-token"
	// GiteaService is the chart's Service for HTTP, and GiteaPort its port.
	GiteaService = "gitea-http"
	GiteaPort    = 3000
)

// giteaChoices are the values of Gitea.
var giteaChoices = []string{"true", "false"}

// giteaScope is a scope of an access token, as Gitea's API names it.
var giteaScope = regexp.MustCompile(`^(all|public-only|(read|write):[a-z]+)$`)

// HasGitea says whether Gitea is installed: by GITEA=true, or because it is among the add-ons.
func (c Config) HasGitea() bool {
	return c.Gitea == "true" || slices.Contains(c.Addons.names(), AddonGitea)
}

// addons are the configured add-ons, with gitea last where only GITEA=true asks for it, and after hcloud-csi: its
// volume is of that StorageClass.
func (c Config) addons() Addons {
	if !c.HasGitea() {
		return c.Addons
	}
	all := slices.Clone(c.Addons)
	if !slices.Contains(all.names(), AddonGitea) {
		all = append(all, Addon{Name: AddonGitea})
	}
	if i := slices.Index(all.names(), AddonGitea); c.GiteaKept() && !slices.Contains(all[i].After, AddonCSI) {
		all[i].After = append(slices.Clone(all[i].After), AddonCSI)
	}
	return all
}

// AddonNames are the names of all add-ons, with commas.
func (c Config) AddonNames() string { return c.addons().String() }

// giteaAddon is the add-on gitea with its defaults.
func (c Config) giteaAddon() Addon {
	all := c.addons()
	return c.Addon(all[slices.Index(all.names(), AddonGitea)])
}

// GiteaKept says whether what is in Gitea outlives its Pod: with hcloud-csi it has a volume.
func (c Config) GiteaKept() bool { return slices.Contains(c.Addons.names(), AddonCSI) }

// NotInLab is what of a configuration cannot become ready in a lab; nil: nothing is known. command has what is typed
// for a rehearsal with these values in place of the configured ones; nil: file, which has them, is to be changed.
func (c Config) NotInLab(file string, command func(values string) string) error {
	if !c.HasGitea() || !c.GiteaKept() {
		return nil
	}
	others := slices.DeleteFunc(c.Addons.names(), func(name string) bool { return name == AddonCSI })
	instead := "leave it out of addons in " + file
	if command != nil {
		instead = command("ADDONS="+strings.Join(others, ",")) + ", or " + instead
	}
	return fmt.Errorf("Gitea and the add-on %s: Gitea's Pod would wait for a volume, which nothing provisions in a lab: "+
		"rehearse without it, where Gitea keeps its data in its Pod: %s", AddonCSI, instead)
}

// GiteaURL is Gitea's address for programs in the cluster.
func (c Config) GiteaURL() string {
	return fmt.Sprintf("http://%s.%s.svc.cluster.local:%d", GiteaService, GiteaNamespace, GiteaPort)
}

// GitInGitea says whether Flux applies a repository of the Gitea in the cluster: no other one is configured.
func (c Config) GitInGitea() bool { return c.GitOps == GitOpsFlux && c.GitURL == "" && c.HasGitea() }

// giteaRepositoryName is what Gitea takes as the name of a repository, but for the ends in reservedEnds.
var giteaRepositoryName = regexp.MustCompile(`^[A-Za-z0-9._-]{1,100}$`)

// reservedEnds are ends of names that Gitea keeps for itself.
var reservedEnds = []string{".git", ".wiki", ".rss", ".atom"}

// giteaRepository checks what Flux reads the repository in Gitea with. What reads it is Gitea's token.
func (v *Findings) giteaRepository(c Config) {
	if !c.GitInGitea() {
		return
	}
	name := c.GiteaRepository
	if !giteaRepositoryName.MatchString(name) || strings.Trim(name, ".") == "" ||
		slices.ContainsFunc(reservedEnds, func(end string) bool { return strings.HasSuffix(name, end) }) {
		v.add("giteaRepository", name, "is no name of a repository in Gitea", "write it like fleet: letters, digits, "+
			"dashes, underscores and dots")
	}
	const hint = "leave it out: Flux reads with the token of gitea-token. Or name that repository with gitUrl"
	for _, given := range []struct{ field, value string }{{"gitTokenFile", c.GitTokenFile},
		{"gitTokenCommand", c.GitTokenCommand}, {"gitKeyFile", c.GitKeyFile}} {
		if given.value != "" {
			v.addPair(given.field, "gitUrl", "…", "is for another repository than the one in Gitea, and gitUrl is empty", hint)
		}
	}
	scopes := Listed(c.GiteaTokenScopes)
	if slices.Contains(scopes, "public-only") || !slices.ContainsFunc(scopes, func(scope string) bool {
		return scope == "all" || scope == "read:repository" || scope == "write:repository"
	}) {
		v.addPair("giteaTokenScopes", "gitops", c.GiteaTokenScopes, "does not let Flux read the repository in Gitea, which is "+
			"private", "add read:repository, without public-only; or name another repository with gitUrl")
	}
}

func (v *Findings) gitea(c Config) {
	if c.Gitea != "" && !slices.Contains(giteaChoices, c.Gitea) {
		v.add("gitea", c.Gitea, "is neither true nor false", "write true, or leave it out")
		return
	}
	if !c.HasGitea() {
		return
	}
	if c.Gitea == "false" {
		v.addPair("gitea", addonsField, c.Gitea, "and gitea is among the add-ons", "leave out one of the two")
	}
	scopes := Listed(c.GiteaTokenScopes)
	if len(scopes) == 0 {
		v.add("giteaTokenScopes", c.GiteaTokenScopes, "names no scope", "Flux needs read:repository")
	}
	for _, scope := range scopes {
		if !giteaScope.MatchString(scope) {
			v.add("giteaTokenScopes", c.GiteaTokenScopes, fmt.Sprintf("names %q, which is no scope of Gitea", scope),
				"write scopes like read:repository or write:repository, with commas")
		}
	}
	v.giteaRepository(c)
	a := c.giteaAddon()
	at := func(field string) string {
		if i := slices.Index(c.Addons.names(), AddonGitea); i >= 0 {
			return fmt.Sprintf("addons[%d].%s", i, field)
		}
		return "gitea"
	}
	if a.Namespace != GiteaNamespace {
		v.add(at("namespace"), a.Namespace, "is not "+GiteaNamespace, "leave it out: the Secrets of Gitea are there")
	}
	if !a.Waits() {
		v.add(at("wait"), "false", "is given for gitea", "leave it out: the step gitea-token asks Gitea for a token")
	}
	if within := c.Within(a); c.GiteaTimeout >= within {
		v.addPair("giteaTimeout", "releaseTimeout", c.GiteaTimeout, fmt.Sprintf("is not less than %s, the longest time for "+
			"the release of Gitea", within), "make it less, so that this wait ends and says why before the one around it does")
	}
}

// addonsField is the add-ons' field.
const addonsField = "addons"

// GiteaScopes are those of the token, without repetition.
func (c Config) GiteaScopes() []string {
	scopes := strings.Split(strings.Join(Listed(c.GiteaTokenScopes), ","), ",")
	slices.Sort(scopes)
	return slices.Compact(scopes)
}
