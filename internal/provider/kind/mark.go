package kind

import (
	"context"
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"strings"

	"sigs.k8s.io/kind/pkg/apis/config/v1alpha4"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/internal/base/text"
	"github.com/slipway-k8s/slipway/internal/cluster/ownership"
	"github.com/slipway-k8s/slipway/platform"
)

// markFolder is the folder in a node's container below which a mount has the identity of the state folder that created
// the container. kind sets no label of a caller's choice; a mount is there from the container's first moment on, so
// that no kill leaves one without it.
const markFolder = "/etc/slipway/state-folder"

// marked is kind's configuration of a cluster that a state folder creates. What is mounted is a folder that kind itself
// mounts into each node, so that every machine has it.
func marked(identity string) *v1alpha4.Cluster {
	return &v1alpha4.Cluster{Nodes: []v1alpha4.Node{{Role: v1alpha4.ControlPlaneRole, ExtraMounts: []v1alpha4.Mount{
		{HostPath: "/lib/modules", ContainerPath: path.Join(markFolder, identity), Readonly: true}}}}}
}

// container is one of a kind cluster's nodes.
type container struct {
	ID      string `json:"Id"`
	Created string
	Mounts  []struct{ Destination string }
}

// creator is the identity of the state folder that created it; empty: none did.
func (c container) creator() string {
	for _, m := range c.Mounts {
		if folder, identity := path.Split(m.Destination); path.Clean(folder) == markFolder {
			return identity
		}
	}
	return ""
}

// String says which container it is, and who created it.
func (c container) String() string {
	by := "not by Slipway, or by a release before it marked what it creates"
	if id := c.creator(); id != "" {
		by = "by the state folder with identity " + text.Printable(id)
	}
	return fmt.Sprintf("container %.12s, created %s %s", text.Printable(c.ID), text.Printable(c.Created), by)
}

// inspect asks an engine for containers.
func inspect(ctx context.Context, engine string, names []string) ([]container, error) {
	out, err := output(ctx, engine, append([]string{"inspect", "--type=container"}, names...)...)
	if err != nil {
		return nil, err
	}
	var all []container
	if err := json.Unmarshal(out, &all); err != nil {
		return nil, fmt.Errorf("read what %s inspect says of %s: %w", engine, strings.Join(names, ", "), err)
	}
	if len(all) != len(names) {
		return nil, fmt.Errorf("%s inspect tells %d containers in place of %s", engine, len(all), strings.Join(names, ", "))
	}
	return all, nil
}

// recordIn is what a state folder has recorded of its management cluster, where that is kind's.
func recordIn(files platform.Files) (ownership.Management, error) {
	r, err := ownership.Read(files)
	if err != nil || r == nil || r.Management == nil || r.Management.Provider != config.ManagementKind {
		return ownership.Management{}, err
	}
	return *r.Management, nil
}

// nodes reports whether a cluster has containers. other is one that this state folder did not create; nil: none is.
func (k *Provider) nodes(name string) (there bool, other *container, err error) {
	all, err := k.kind.containers(name)
	if err != nil {
		return false, nil, fmt.Errorf("find out who created kind cluster %s: %w", name, err)
	}
	identity, err := ownership.KnownIdentity(platform.Tools{Files: k.files})
	if err != nil {
		return false, nil, err
	}
	slices.SortFunc(all, func(a, b container) int { return strings.Compare(a.ID, b.ID) })
	for i := range all {
		if identity == "" || all[i].creator() != identity {
			return true, &all[i], nil
		}
	}
	return len(all) > 0, nil, nil
}
