package connect

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/client/kubeconfig"
	"github.com/slipway-k8s/slipway/internal/cluster/wait"
	"github.com/slipway-k8s/slipway/platform"
)

// Offered is a kubeconfig of the cluster, read from its manager, that may take the place of the one in the state
// folder.
type Offered struct {
	Data   []byte
	Source string // "Secret default/k8s-kubeconfig"
	// Endpoints are addresses, host:port, that the API has by what is known besides the Secret. That of the kubeconfig in
	// the state folder is always one of them.
	Endpoints []string
	// ByManagement tells that it is of a management cluster, in which a cluster may have been created again. It then takes
	// the place of a kubeconfig that opens no cluster any more, whatever that had.
	ByManagement bool
}

// ForeignError says that a kubeconfig is not of the cluster that the one in the state folder opens.
type ForeignError struct{ text string }

// Error implements error.
func (e *ForeignError) Error() string { return e.text }

// Replace puts a kubeconfig of the cluster into the state folder. One that is there stays in use until the other has
// opened the cluster, and stays for good where the other one has another authority or leads to an address that is not
// known to be the cluster's: the error then is a *ForeignError.
func Replace(ctx context.Context, tools platform.Tools, say flow.Say, o Offered) error {
	offered, err := kubeconfig.Accept(o.Data)
	if err != nil {
		return fmt.Errorf("the kubeconfig in %s is not used: %w. The control plane provider writes no such kubeconfig: "+
			"find out who changed the Secret; once it is deleted, the provider writes it anew", o.Source, err)
	}
	data, err := tools.Files.Read(platform.Kubeconfig)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err == nil && !bytes.Equal(data, o.Data) {
		if err := mayReplace(ctx, tools, say, data, o, offered); err != nil {
			return err
		}
	}
	return tools.Files.Write(platform.Kubeconfig, o.Data)
}

// mayReplace returns nil where the offered kubeconfig may take the place of another one.
func mayReplace(ctx context.Context, tools platform.Tools, say flow.Say, data []byte, o Offered,
	offered kubeconfig.Config) error {
	path := tools.Files.Path(platform.Kubeconfig)
	is, err := kubeconfig.Accept(data)
	switch {
	case err != nil && o.ByManagement:
		say("%s is fetched anew from %s: %v", path, o.Source, err)
		return nil
	case err != nil:
		return fmt.Errorf("%s: %w", path, err)
	}
	var silent error // why the one that is there opens no cluster
	if o.ByManagement {
		if silent = opens(ctx, tools, data); ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
	switch {
	case silent != nil && !offered.SameAuthority(is):
		say("%s opens no cluster any more (%v): %s takes its place", path, silent, o.Source)
		return nil
	case !offered.SameAuthority(is):
		return &ForeignError{fmt.Sprintf("the kubeconfig in %s trusts another certificate authority than %s, which opens "+
			"the cluster: it is not used. Find out who changed the Secret. Where the operator replaced the authority, put a "+
			"kubeconfig with the new one there by hand (talosctl --talosconfig %s --nodes ADDRESS kubeconfig %s)", o.Source,
			path, tools.Files.Path(platform.Talosconfig), path)}
	case offered.Server != is.Server && !slices.Contains(o.Endpoints, offered.Server):
		return &ForeignError{fmt.Sprintf("the kubeconfig in %s leads to %s, and the cluster's API is at %s: it is not "+
			"used. Find out who changed the Secret; once it is deleted, the control plane provider writes it anew", o.Source,
			offered.Server, strings.Join(withoutRepeats(append(slices.Clone(o.Endpoints), is.Server)), " or "))}
	case silent != nil: // nothing to lose: the cluster's API may not answer yet
		return nil
	}
	w := wait.Wait{What: "an answer to the kubeconfig in " + o.Source, Within: wait.TakenWithin, Each: AliveWithin}
	err = w.Until(ctx, say, func(ctx context.Context) (string, error) { return "", opens(ctx, tools, o.Data) })
	if err != nil {
		return fmt.Errorf("%s stays in use: %w", path, err)
	}
	return nil
}

// opens returns nil where a kubeconfig opens a cluster: its API takes the credentials.
func opens(ctx context.Context, tools platform.Tools, data []byte) error {
	cluster, err := tools.Connect(data)
	if err != nil {
		return err
	}
	asking, cancel := context.WithTimeout(ctx, AliveWithin)
	defer cancel()
	_, err = cluster.UID(asking)
	return err
}

func withoutRepeats(all []string) []string {
	slices.Sort(all)
	return slices.Compact(all)
}
