package flux

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/internal/base/redact"
	"github.com/slipway-k8s/slipway/internal/client/kube"
)

// ReadReleases reads the deployed releases of a configuration from a cluster: their versions and values. Values that
// hide knows as secrets, or that are secrets of the cluster, or are called like secrets, are not among them. Releases
// that cannot be in the tree are left out, with the reason.
func ReadReleases(ctx context.Context, c *kube.Cluster, cfg config.Config, hide *redact.Redactor) (found []Release,
	left []LeftOut, err error) {
	if err := learn(ctx, c, hide); err != nil {
		return nil, nil, err
	}
	states, err := c.Releases(ctx)
	if err != nil {
		return nil, nil, err
	}
	wanted := configured(cfg)
	for _, r := range wanted {
		if u, err := url.Parse(r.Repository); err == nil {
			password, _ := u.User.Password()
			hide.Learn(password)
		}
	}
	for _, r := range wanted {
		why, err := deployed(ctx, c, states, &r, hide)
		if err != nil {
			return nil, nil, err
		}
		if why != "" {
			left = append(left, LeftOut{r.Namespace + "/" + r.Release, why})
			continue
		}
		found = append(found, r)
	}
	for _, s := range states {
		if s.Owner != "" && !slices.ContainsFunc(wanted, func(r Release) bool {
			return r.Release == s.Name && r.Namespace == s.Namespace
		}) {
			left = append(left, LeftOut{s.Namespace + "/" + s.Name, "the configuration does not have it (any more), so that " +
				"its chart repository is not known"})
		}
	}
	if len(found) == 0 {
		return nil, left, errors.New("none of the Helm releases that Slipway installs is deployed in the cluster: run the " +
			"bootstrap first")
	}
	for i := range found { // Flux waits for good for a HelmRelease that is not there
		found[i].after = slices.DeleteFunc(found[i].after, func(name string) bool {
			return !slices.ContainsFunc(found, func(r Release) bool { return r.Program == name })
		})
	}
	return found, left, nil
}

// deployed completes a release with what Helm's record has of it. why says for what reason it cannot be in the tree;
// empty: it can.
func deployed(ctx context.Context, c *kube.Cluster, states []kube.ReleaseState, r *Release, hide *redact.Redactor) (
	why string, err error) {
	i := slices.IndexFunc(states, func(s kube.ReleaseState) bool {
		return s.Name == r.Release && s.Namespace == r.Namespace
	})
	if i < 0 {
		return "it is not installed", nil
	}
	if s := states[i]; s.Status != "deployed" {
		return fmt.Sprintf("its newest revision, %d, is %s: run the step %s first", s.Revision, s.Status, r.Program), nil
	}
	if u, err := url.Parse(r.Repository); err != nil || !slices.Contains([]string{"https", "http", "oci"}, u.Scheme) {
		return fmt.Sprintf("Flux cannot read its chart repository %s", kube.WithoutCredentials(r.Repository)), nil
	}
	helm, err := c.Helm(r.Namespace, "", func(string, ...any) {})
	if err != nil {
		return "", err
	}
	is, err := helm.Deployed(r.Release)
	if err != nil || is == nil {
		return "it is not deployed", err
	}
	if is.Chart != r.Name {
		return fmt.Sprintf("it is chart %s, and %s is configured", is.Chart, r.Name), nil
	}
	r.Version = is.Version
	r.Values, r.private, r.Private = split(is.Values, hide)
	return "", ctx.Err()
}

// learn reads the secrets that Slipway writes into the cluster.
func learn(ctx context.Context, c *kube.Cluster, hide *redact.Redactor) error {
	for _, key := range []client.ObjectKey{{Namespace: "kube-system", Name: config.CCMSecretName}, {
		Namespace: Namespace, Name: Name}, {Namespace: config.GiteaNamespace, Name: config.GiteaAdminSecret},
		{Namespace: config.GiteaNamespace, Name: config.GiteaTokenSecret}} {
		s := &corev1.Secret{}
		switch err := c.Get(ctx, key, s); {
		case kube.Absent(err):
		case err != nil:
			return fmt.Errorf("read Secret %s, whose data must not come into Git: %w", key, err)
		}
		for _, name := range []string{"token", "password", "identity"} {
			hide.Learn(string(s.Data[name]))
		}
	}
	return nil
}
