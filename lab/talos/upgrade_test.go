package talos

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/siderolabs/talos/pkg/machinery/client"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/slipway-k8s/slipway/lab/plane/planetest"
)

// installer is an installer image of the Image Factory, but for its version.
const installer = "factory.example/hcloud-installer/376567988ad370138ad8b2698212367b8edcb69b5fd68c80be1f2ec7d603b4ba:"

// A server that is upgraded boots the new Talos with its disk: it is the member of etcd that it was, also after the next
// boot. A member that does not serve keeps the others from being upgraded.
func TestUpgrade(t *testing.T) {
	bin := planetest.Bin(t)
	f := newFixture(t)
	x := newTalos(t, t.TempDir(), bin)
	var present atomic.Pointer[Talos]
	present.Store(x)
	f.serveEndpoint(t, &present)
	servers := f.controlPlanes(2)
	start(t, x, servers[0])
	one, two := f.admin(t, f.private(1)), f.admin(t, f.private(2))
	booted(t, one)
	bootstrap(t, one)
	awaitAPIServer(t, x, 1)
	start(t, x, servers[1])
	both := servers[0].Name + " " + servers[1].Name
	before := awaitMembers(t, one, both)
	upgrade := func(c *client.Client, image string) error {
		//lint:ignore SA1019 the command makes this call, which Talos before 1.13 knows too; LifecycleService is of 1.13
		_, err := c.UpgradeWithOptions(t.Context(), client.WithUpgradeImage(image), client.WithUpgradePreserve(true))
		return err
	}
	for _, image := range []string{"", "factory.example/hcloud-installer/x", installer + "latest"} {
		if err := upgrade(two, image); status.Code(err) != codes.InvalidArgument {
			t.Errorf("image %q: %v", image, err)
		}
	}
	if err := x.Stop(t.Context(), 2, true); err != nil {
		t.Fatal(err)
	}
	if err := upgrade(one, installer+"v1.12.3"); status.Code(err) == codes.OK || !strings.Contains(err.Error(), "etcd") {
		t.Errorf("beside a member that is away: %v", err)
	}
	start(t, x, servers[1])
	runs := func(version string) {
		t.Helper()
		await(t, patience, "Talos "+version+" with both members", func() error {
			is, err := two.Version(t.Context())
			if err != nil {
				return err
			}
			if tag := is.Messages[0].Version.Tag; tag != version {
				return fmt.Errorf("it runs %s", tag)
			}
			now, err := members(t.Context(), two)
			if err == nil && !slices.Equal(now, before) {
				err = fmt.Errorf("the members are %v, before %v", now, before)
			}
			return err
		})
	}
	runs(defaultVersion)
	await(t, patience, "the upgrade to begin", func() error { return upgrade(two, installer+"v1.12.3") })
	runs("v1.12.3")
	if err := x.Stop(t.Context(), 2, false); err != nil {
		t.Fatal(err)
	}
	start(t, x, servers[1])
	runs("v1.12.3")
	if is, err := one.Version(t.Context()); err != nil || is.Messages[0].Version.Tag != defaultVersion {
		t.Error(errors.Join(err, fmt.Errorf("the other server runs %v", is)))
	}
}
