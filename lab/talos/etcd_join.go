package talos

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/slipway-k8s/slipway/lab/plane"
)

// joinPause is the time between two tries to join. A cluster refuses a second learner, and new members for up to five
// seconds after each promotion ("unhealthy cluster"), so tries are many.
const joinPause = 500 * time.Millisecond

// errHalfRestored is why etcd is not started on the data of a failed restoration. A real server cannot continue either.
var errHalfRestored = errors.New(
	"the data folder holds an incomplete restoration: reset the server's EPHEMERAL partition, then recover again")

// prepare decides how the member starts: on the data that are there; as the only member of a new cluster, or of one
// restored from a snapshot, on request; or, once another member is found, as a learner of that one's cluster.
func (e *etcdService) prepare(ctx context.Context, config *plane.EtcdConfig) error {
	if e.hasData() {
		return nil // the flags of a first start have no effect now
	}
	for {
		request, requested := e.bootstrap.get()
		if request != nil {
			e.decide(true)
			if !request.RecoverEtcd {
				return nil
			}
			err := e.restore(config, request.RecoverSkipHashCheck)
			if err != nil { // another snapshot, another try: if there are no data yet
				e.bootstrap.set(nil)
				e.decide(false)
			}
			return err
		}
		_, discovered := e.system.talos.discovery.others(e.system.cluster, e.system.id)
		var again <-chan time.Time
		if urls := e.otherMembers(); len(urls) > 0 {
			err := e.join(ctx, urls, config)
			if err == nil {
				return nil
			}
			e.decide(false)
			e.system.services.set(serviceEtcd, statePreparing, "Running pre state: joining the cluster: "+err.Error())
			again = time.After(joinPause)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-requested:
		case <-discovered:
		case <-again:
		}
	}
}

// decideToJoin excludes a Bootstrap from here on: it would create a second cluster.
func (e *etcdService) decideToJoin() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if request, _ := e.bootstrap.get(); request != nil {
		return errors.New("a Bootstrap was requested meanwhile")
	}
	e.decided = true
	return nil
}

func (e *etcdService) decide(decided bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.decided = decided
}

// join adds the member to the cluster of those at urls, as a learner, and configures it to start as that. As long as
// they have no leader nothing is decided, and a Bootstrap is taken.
func (e *etcdService) join(ctx context.Context, urls []string, config *plane.EtcdConfig) error {
	ctx, cancel := context.WithTimeout(clientv3.WithRequireLeader(ctx), etcdTimeout)
	defer cancel()
	return e.with(ctx, urls, func(c *clientv3.Client) error {
		list, err := c.MemberList(ctx)
		if err != nil {
			return fmt.Errorf("list the members: %w", err)
		}
		if err := e.decideToJoin(); err != nil {
			return err
		}
		for _, m := range list.Members {
			if formerSelf(m, config) {
				if _, err := c.MemberRemove(ctx, m.ID); err != nil {
					return fmt.Errorf("remove the member %x, which this server was before it lost its data: %w", m.ID, err)
				}
			}
		}
		added, err := c.MemberAddAsLearner(ctx, []string{config.PeerURL()})
		if err != nil {
			return fmt.Errorf("add this server as a learner: %w", err)
		}
		var initial []string
		for _, m := range added.Members {
			name := m.Name
			if m.ID == added.Member.ID {
				name = config.Name
			}
			for _, u := range m.PeerURLs {
				initial = append(initial, name+"="+u)
			}
		}
		config.InitialCluster, config.Existing = strings.Join(initial, ","), true
		return nil
	})
}

// formerSelf says whether a member was this server: a member of its name, or one that was added for its address and
// never started, as when the server ends between the two.
func formerSelf(m *etcdserverpb.Member, config *plane.EtcdConfig) bool {
	return m.Name == config.Name || m.Name == "" && slices.Contains(m.PeerURLs, config.PeerURL())
}

// promote has another member promote the learner id. Until it has caught up, etcd refuses.
func (e *etcdService) promote(ctx context.Context, id uint64) error {
	urls := e.otherMembers()
	if len(urls) == 0 {
		return errors.New("no other member of the cluster is known to serve")
	}
	return e.with(ctx, urls, func(c *clientv3.Client) error {
		_, err := c.MemberPromote(ctx, id)
		if errors.Is(err, rpctypes.ErrMemberNotLearner) {
			return nil
		}
		return err
	})
}
