package cloud

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
)

// TestAnIDAsText names a location, a server type and a load balancer type by their ids, which the command hcloud sends
// as texts.
func TestAnIDAsText(t *testing.T) {
	w := newHarness(t)
	ctx := t.Context()
	hel1 := must[*hcloud.Location](t)(w.Location.GetByName(ctx, "hel1"))
	kind := must[*hcloud.ServerType](t)(w.ServerType.GetByName(ctx, "cx33"))
	image := must[*hcloud.Image](t)(w.Image.GetForArchitecture(ctx, "debian-12", hcloud.ArchitectureX86))
	created := must[hcloud.ServerCreateResult](t)(w.Server.Create(ctx, hcloud.ServerCreateOpts{
		Name: "one", ServerType: &hcloud.ServerType{ID: kind.ID}, Image: image, Location: &hcloud.Location{ID: hel1.ID},
		StartAfterCreate: hcloud.Ptr(false)}))
	if is := created.Server; is.Location.Name != "hel1" || is.ServerType.Name != "cx33" {
		t.Errorf("the server is a %s in %s", is.ServerType.Name, is.Location.Name)
	}
	balancer := must[*hcloud.LoadBalancerType](t)(w.LoadBalancerType.GetByName(ctx, "lb11"))
	for _, tt := range []struct {
		path, body string
		want       int
	}{
		{"/load_balancers", fmt.Sprintf(`{"name":"two","load_balancer_type":"%d","location":"%d"}`, balancer.ID, hel1.ID),
			http.StatusCreated},
		{"/servers", fmt.Sprintf(`{"name":"three","server_type":"%d","image":"%d","location":"%d"}`, kind.ID, image.ID,
			hel1.ID), http.StatusCreated},
		{"/servers", fmt.Sprintf(`{"name":"four","server_type":"%d","image":"debian-12","location":"99"}`, kind.ID),
			http.StatusUnprocessableEntity},
	} {
		if code, answer := w.raw(http.MethodPost, tt.path, tt.body); code != tt.want {
			t.Errorf("%s: %d %s", tt.body, code, answer)
		}
	}
}
