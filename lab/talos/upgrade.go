package talos

import (
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/siderolabs/talos/pkg/machinery/api/machine"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// installedFile is on a server's disk, beside /var: the version of the Talos that an upgrade has installed in place of
// the image's. A server that is built again from an image has a new disk.
const installedFile = "talos-version"

// installedVersion is the version of Talos that a server boots: that of its last upgrade, or else its image's.
func installedVersion(s *server, ofImage string) string {
	installed, err := os.ReadFile(s.path(installedFile))
	if version := strings.TrimSpace(string(installed)); err == nil && version != "" {
		return version
	}
	return ofImage
}

// Upgrade installs the Talos of an installer image and reboots into it, with the server's disk. Of the installer only
// the version in its tag means something in a lab, and the node is not drained: its Pods end as with every reboot. Like
// the real one it is refused while a member of etcd does not answer, unless force is set.
func (m *machined) Upgrade(ctx context.Context, request *machine.UpgradeRequest) (*machine.UpgradeResponse, error) {
	tag, err := imageTag(request.Image)
	if err != nil {
		return nil, status.Errorf(codes.InvalidArgument, "error validating installer image: %v", err)
	}
	version := versionOf(tag, "")
	if version != tag {
		return nil, status.Errorf(codes.InvalidArgument, "error validating installer image %q: its tag is no version of Talos",
			request.Image)
	}
	if !request.Preserve {
		return nil, status.Error(codes.Unimplemented, "a lab upgrades a server with its data only (preserve)")
	}
	if m.system.etcd != nil && !request.Force {
		if err := m.system.etcd.everyMemberServes(ctx); err != nil {
			return nil, status.Errorf(codes.FailedPrecondition, "error validating etcd for upgrade: %v", err)
		}
	}
	if err := os.WriteFile(m.system.server.path(installedFile), []byte(version+"\n"), 0o600); err != nil {
		return nil, fmt.Errorf("install Talos %s: %w", version, unwrapPath(err))
	}
	m.system.log.Info("Talos is upgraded", "from", m.system.version, "to", version)
	m.system.events.publish(&machine.SequenceEvent{Sequence: "upgrade", Action: machine.SequenceEvent_START})
	m.system.endSoon(errReboot)
	return &machine.UpgradeResponse{Messages: []*machine.Upgrade{{Ack: "Upgrade request received"}}}, nil
}

// everyMemberServes is an error if a member of etcd, as this server's lists them, does not serve.
func (e *etcdService) everyMemberServes(ctx context.Context) error {
	own, _ := e.url.get()
	if own == "" {
		state, message := e.system.services.get(serviceEtcd)
		return fmt.Errorf("service %s is %s: %s", serviceEtcd, state, message)
	}
	asking, cancel := context.WithTimeout(ctx, etcdTimeout)
	defer cancel()
	var members *clientv3.MemberListResponse
	if err := e.with(asking, []string{own}, func(c *clientv3.Client) (err error) {
		members, err = c.MemberList(asking)
		return err
	}); err != nil {
		return fmt.Errorf("list the members: %w", err)
	}
	for _, m := range members.Members {
		if len(m.ClientURLs) == 0 {
			return fmt.Errorf("member %s has not started", m.Name)
		}
		if err := e.quorum(ctx, m.ClientURLs[0]); err != nil {
			return fmt.Errorf("member %s is not healthy: %w", m.Name, err)
		}
	}
	return nil
}
