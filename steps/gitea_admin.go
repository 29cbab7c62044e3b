package steps

import (
	"context"
	"crypto/rand"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/client/kube"
	"github.com/slipway-k8s/slipway/internal/cluster/wait"
)

// giteaAdmin is the name of Gitea's administrator, as the chart calls it.
const giteaAdmin = "gitea_admin"

// giteaAdmin ensures that the Secret with Gitea's administrator exists, which the chart reads. One that exists is left
// alone.
func (s addonStep) giteaAdmin(ctx context.Context, say flow.Say, workload *kube.Cluster) error {
	if !s.cfg.GiteaKept() {
		say("note: Gitea gets no volume, because %s is not among the add-ons: its repositories and its token are gone with "+
			"its Pod", config.AddonCSI)
	}
	what := fmt.Sprintf("Secret %s/%s", config.GiteaNamespace, config.GiteaAdminSecret)
	return wait.Wait{What: "the API server to take " + what, Within: wait.TakenWithin}.Until(ctx, say,
		func(ctx context.Context) (string, error) {
			_, _, err := giteaCredentials(ctx, workload)
			switch {
			case err == nil:
				return "", nil
			case !apierrors.IsNotFound(err) && kube.Unwell(err):
				return "", err
			case !apierrors.IsNotFound(err):
				return "", wait.Final(err)
			}
			say("creating %s", what)
			err = workload.Create(ctx, &corev1.Secret{
				ObjectMeta: metav1.ObjectMeta{Namespace: config.GiteaNamespace, Name: config.GiteaAdminSecret},
				Data: map[string][]byte{"username": []byte(giteaAdmin), "password": []byte(strings.ToLower(rand.Text()) +
					"-" + rand.Text())},
			})
			switch {
			case err == nil, apierrors.IsAlreadyExists(err): // or a parallel run was faster
				return "", nil
			case kube.Unwell(err):
				return "", fmt.Errorf("create %s: %w", what, err)
			}
			return "", wait.Final(fmt.Errorf("create %s: %w", what, err))
		})
}

// giteaCredentials reads the Secret with Gitea's administrator.
func giteaCredentials(ctx context.Context, workload *kube.Cluster) (user, password string, err error) {
	what := fmt.Sprintf("Secret %s/%s", config.GiteaNamespace, config.GiteaAdminSecret)
	is := &corev1.Secret{}
	if err := workload.Get(ctx, client.ObjectKey{Namespace: config.GiteaNamespace, Name: config.GiteaAdminSecret},
		is); err != nil {
		return "", "", fmt.Errorf("get %s: %w", what, err)
	}
	user, password = string(is.Data["username"]), string(is.Data["password"])
	if user == "" || password == "" {
		return "", "", fmt.Errorf("%s has no username or no password, and Slipway does not replace it: write both into it, "+
			"or delete it to have it created again", what)
	}
	return user, password, nil
}
