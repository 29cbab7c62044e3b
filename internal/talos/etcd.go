package talos

import (
	"cmp"
	"context"
	"slices"

	"github.com/siderolabs/talos/pkg/machinery/api/machine"
)

// EtcdMember is a member of the cluster's etcd, as etcd itself lists it.
type EtcdMember struct {
	Name    string // of its node
	Learner bool   // does not vote yet
}

// EtcdMembers lists etcd's members, by name, as the node at an address knows them.
func (c *Credentials) EtcdMembers(ctx context.Context, address string) ([]EtcdMember, error) {
	t, err := c.dial(ctx, address)
	if err != nil {
		return nil, err
	}
	defer t.Close()
	list, err := t.EtcdMemberList(ctx, &machine.EtcdMemberListRequest{})
	if err != nil {
		return nil, plain("list etcd's members through "+address, err)
	}
	var members []EtcdMember
	for _, m := range list.GetMessages() {
		for _, member := range m.GetMembers() {
			members = append(members, EtcdMember{Name: member.GetHostname(), Learner: member.GetIsLearner()})
		}
	}
	slices.SortFunc(members, func(a, b EtcdMember) int { return cmp.Compare(a.Name, b.Name) })
	return members, nil
}
