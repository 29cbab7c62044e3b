package steps

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/apricote/hcloud-upload-image/hcloudimages"
	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	"github.com/hetznercloud/hcloud-go/v2/hcloud/schema"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/client/hetzner/hetznertest"
	"github.com/slipway-k8s/slipway/internal/cluster/clustertest"
	"github.com/slipway-k8s/slipway/platform"
)

const testImage = "talos-amd64-v1.13.9"

// studio is a Hetzner project in which runs make images.
type studio struct {
	*hetznertest.Server
	t     *testing.T
	state string
	cfg   config.Config
	// overrides is the folder with the operator's files; empty: there are none.
	overrides string
	// During is called by every upload between the boot of its server and its snapshot.
	during func(ctx context.Context)
}

func newStudio(t *testing.T) *studio {
	s := &studio{Server: hetznertest.NewProject(), t: t, state: t.TempDir(), cfg: config.Defaults(),
		during: func(context.Context) {}}
	s.cfg.ImageTimeout = config.Duration(20 * time.Second)
	t.Cleanup(s.Close)
	return s
}

// run runs the step image through a transport; nil: the usual one. It returns the last lines that it said.
func (s *studio) run(ctx context.Context, transport http.RoundTripper) (Image, []string, error) {
	tools := platform.Tools{Hetzner: s.Client(transport), Management: &clustertest.Provider{},
		Files: platform.FilesIn(s.state), Overrides: s.overrides}
	tools.Upload = s.upload
	plan, err := New(s.cfg, tools)
	if err != nil {
		s.t.Fatal(err)
	}
	journal := flow.Memory()
	var said []string
	_, err = plan.Graph.Run(ctx,
		flow.Options{Journal: journal, Targets: []string{"image"},
			Observe: func(e flow.Event) { said = append(said, e.Message) }})
	if err != nil {
		return Image{}, said, err
	}
	image, _, err := flow.Restore(ctx, journal, plan.Image)
	return image, said, err
}

func (s *studio) mustRun() Image {
	s.t.Helper()
	image, said, err := s.run(s.t.Context(), nil)
	if err != nil {
		s.t.Fatalf("%v\n%s", err, strings.Join(said, "\n"))
	}
	return image
}

// upload makes the requests of hcloudimages v1.3.0, its clean-up included, and no SSH.
func (s *studio) upload(ctx context.Context, c *hcloud.Client, o hcloudimages.UploadOptions) (*hcloud.Image, error) {
	labels := maps.Clone(o.Labels)
	labels[hcloudimages.CreatedByLabel] = hcloudimages.CreatedByValue
	key, _, err := c.SSHKey.Create(ctx,
		hcloud.SSHKeyCreateOpts{Name: "upload", PublicKey: "ssh-ed25519 AAAA", Labels: labels})
	if err != nil {
		return nil, err
	}
	defer func() { _, _ = c.SSHKey.Delete(ctx, key) }()
	made, _, err := c.Server.Create(ctx, hcloud.ServerCreateOpts{
		Name: "upload", ServerType: o.ServerType, Location: o.Location, Image: &hcloud.Image{Name: "ubuntu-24.04"},
		SSHKeys: []*hcloud.SSHKey{key}, Labels: labels, StartAfterCreate: hcloud.Ptr(false),
	})
	if err != nil {
		return nil, fmt.Errorf("creating the temporary server failed: %w", err)
	}
	if err := c.Action.WaitFor(ctx, made.Action); err != nil {
		return nil, err
	}
	defer func() { _, _, _ = c.Server.DeleteWithResult(ctx, made.Server) }()
	rescue, _, err := c.Server.EnableRescue(ctx, made.Server,
		hcloud.ServerEnableRescueOpts{Type: hcloud.ServerRescueTypeLinux64, SSHKeys: []*hcloud.SSHKey{key}})
	if err != nil {
		return nil, err
	}
	if err := c.Action.WaitFor(ctx, rescue.Action); err != nil {
		return nil, err
	}
	on, _, err := c.Server.Poweron(ctx, made.Server)
	if err != nil {
		return nil, err
	}
	if err := c.Action.WaitFor(ctx, on); err != nil {
		return nil, err
	}
	s.during(ctx)
	taken, _, err := c.Server.CreateImage(ctx, made.Server,
		&hcloud.ServerCreateImageOpts{Type: hcloud.ImageTypeSnapshot, Description: o.Description, Labels: labels})
	if err != nil {
		return nil, err
	}
	return taken.Image, c.Action.WaitFor(ctx, taken.Action)
}

// finished checks that one image is there, and nothing temporary.
func (s *studio) finished(image Image) {
	s.t.Helper()
	images := s.Images()
	if len(images) != 1 || images[0].ID != image.ID || images[0].Status != "available" {
		s.t.Errorf("images %+v, the step's is %d", images, image.ID)
	}
	if len(s.Servers())+len(s.Keys()) > 0 {
		s.t.Errorf("left over: servers %+v, keys %+v", s.Servers(), s.Keys())
	}
}

func ours(run string) map[string]string {
	return map[string]string{
		"apricote.de/created-by": "hcloud-upload-image", "slipway-cluster": "k8s", "slipway-run": run,
		"caph-image-name": testImage, "os": "talos", "arch": "amd64",
	}
}

// mortal is a client's transport that dies with a request: before it is sent, or when its answer was to be read. The
// process is dead with it.
type mortal struct {
	at       int
	answered bool // the request is served before the end
	die      func()

	mu   sync.Mutex
	seen int
}

var errDead = errors.New("killed")

func (m *mortal) RoundTrip(r *http.Request) (*http.Response, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.seen++
	if m.seen < m.at || m.at == 0 {
		return http.DefaultTransport.RoundTrip(r)
	}
	if m.seen == m.at && m.answered {
		if a, err := http.DefaultTransport.RoundTrip(r.WithContext(context.WithoutCancel(r.Context()))); err == nil {
			a.Body.Close()
		}
	}
	m.die()
	return nil, errDead
}

// foreign plants what is not ours to touch: made by the same library for somebody else, and for another cluster of
// ours, which may be at work on another image.
func foreign(s *studio) {
	library := map[string]string{"apricote.de/created-by": "hcloud-upload-image"}
	s.Put("servers", 1, schema.Server{ID: 1, Name: "hcloud-upload-image-1", Labels: library})
	s.Put("ssh_keys", 2, schema.SSHKey{ID: 2, Name: "hcloud-upload-image-1", Labels: library})
	other := ours("another-run")
	other["slipway-cluster"], other["caph-image-name"] = "other", "talos-amd64-v1.11.0"
	s.Put("servers", 3, schema.Server{ID: 3, Name: "hcloud-upload-image-3", Labels: other,
		Created: time.Now().Add(-24 * time.Hour)})
	s.PutImage(schema.Image{ID: 4, Type: "snapshot", Status: "available", Architecture: "x86",
		Labels: map[string]string{"os": "talos"}, Description: testImage})
	s.PutImage(schema.Image{ID: 5, Type: "snapshot", Status: "available", Architecture: "arm",
		Labels: map[string]string{"caph-image-name": testImage}})
}

// withoutForeign checks that it is there still, and takes it away.
func withoutForeign(s *studio) {
	s.t.Helper()
	servers, keys, images := s.Servers(), s.Keys(), s.Images()
	if len(servers) < 2 || servers[0].ID != 1 || servers[1].ID != 3 || len(keys) < 1 || keys[0].ID != 2 ||
		len(images) < 2 || images[0].ID != 4 || images[1].ID != 5 {
		s.t.Fatalf("something foreign was touched: servers %+v, keys %+v, images %+v", servers, keys, images)
	}
	c := s.Client(nil)
	for _, id := range []int64{1, 3} {
		deleted, _, err := c.Server.DeleteWithResult(s.t.Context(), &hcloud.Server{ID: id})
		if err == nil {
			err = c.Action.WaitFor(s.t.Context(), deleted.Action)
		}
		if err != nil {
			s.t.Fatal(err)
		}
	}
	if _, err := c.SSHKey.Delete(s.t.Context(), &hcloud.SSHKey{ID: 2}); err != nil {
		s.t.Fatal(err)
	}
	s.Drop("images", 4)
	s.Drop("images", 5)
}

// made is a snapshot that a run made, or is making.
func made(run, status string) schema.Image {
	created := time.Now()
	return schema.Image{Type: "snapshot", Status: status, Architecture: "x86", Labels: ours(run), Created: &created}
}

// transportFunc is a client's transport.
type transportFunc func(*http.Request) (*http.Response, error)

func (f transportFunc) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// behind leaves out of the lists of images what was made since it was last up to date.
type behind struct {
	times int // that a list is behind once it has something to leave out; after that it is up to date
	lists int
}

func (b *behind) RoundTrip(r *http.Request) (*http.Response, error) {
	reply, err := http.DefaultTransport.RoundTrip(r)
	if err != nil || r.Method != http.MethodGet || r.URL.Path != "/images" || b.lists == b.times {
		return reply, err
	}
	data, err := io.ReadAll(reply.Body)
	if err != nil {
		return nil, err
	}
	if err := reply.Body.Close(); err != nil {
		return nil, err
	}
	if !bytes.Equal(bytes.TrimSpace(data), []byte(`{"images":[]}`)) {
		b.lists++
		data = []byte(`{"images":[]}`)
	}
	reply.Body, reply.ContentLength = io.NopCloser(bytes.NewReader(data)), int64(len(data))
	return reply, nil
}
