package kind

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/base/usage"
	"github.com/slipway-k8s/slipway/internal/client/kube"
	"github.com/slipway-k8s/slipway/steps"
)

// Given is a management cluster that is there already: behind a kubeconfig of the operator's, or the one that this
// process runs in.
type Given struct {
	what  string // "the management cluster of /some/kubeconfig"
	open  func() ([]byte, error)
	ready func(ctx context.Context, kubeconfig []byte) error
}

// behind is the cluster behind a kubeconfig.
func behind(path string) Given {
	return Given{what: "the management cluster of " + path, ready: answers, open: func() ([]byte, error) {
		kubeconfig, err := os.ReadFile(path)
		if err != nil {
			return nil, fmt.Errorf("read MANAGEMENT_KUBECONFIG: %w", err)
		}
		return kubeconfig, nil
	}}
}

// around is the cluster that this process runs in.
func around() Given {
	return Given{what: "the cluster that this Pod runs in as management cluster", ready: answers, open: podKubeconfig}
}

// Name implements platform.ManagementProvider.
func (g Given) Name() string { return "kubeconfig" }

// Given implements platform.GivenManagement.
func (g Given) Given() bool { return true }

// OwnKubeconfig implements platform.NamedManagement.
func (g Given) OwnKubeconfig() ([]byte, error) { return g.open() }

// Ensure returns the kubeconfig of the cluster.
func (g Given) Ensure(ctx context.Context, _ string, say flow.Say) ([]byte, error) {
	say("using %s", g.what)
	kubeconfig, err := g.open()
	if err != nil {
		return nil, err
	}
	return kubeconfig, g.ready(ctx, kubeconfig)
}

// Exists can say yes or that it does not know: a kubeconfig that leads nowhere is no proof that the cluster is gone.
func (g Given) Exists(ctx context.Context, _ string) (bool, error) {
	kubeconfig, err := g.open()
	if err != nil {
		return false, err
	}
	err = g.ready(ctx, kubeconfig)
	return err == nil, err
}

// Delete refuses: what was given is not ours to delete.
func (g Given) Delete(context.Context, string) error {
	return fmt.Errorf("%s: %w", g.what, steps.ErrNotOurs)
}

// podKubeconfig opens the cluster that this process runs in. Outside of a Pod its error is a usage.Error.
func podKubeconfig() ([]byte, error) {
	environment := map[string]string{}
	for _, name := range []string{"KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"} {
		environment[name] = os.Getenv(name)
	}
	kubeconfig, err := kube.PodKubeconfig(environment)
	if errors.Is(err, kube.ErrNoPod) {
		return nil, usage.Errorf("MANAGEMENT=%s needs a kubeconfig, or a Pod of that cluster to run in: name the kubeconfig in "+
			"MANAGEMENT_KUBECONFIG (managementKubeconfig): %w", config.ManagementExisting, err)
	}
	return kubeconfig, err
}

// CheckPod refuses a process that does not run in a Pod of a cluster. Its error is a usage.Error.
func CheckPod() error {
	_, err := podKubeconfig()
	return err
}
