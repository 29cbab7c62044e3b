package cloud

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud/schema"
)

// Cloud is one simulated project of the Hetzner Cloud.
type Cloud struct {
	config   Config
	catalog  *catalog
	mux      *http.ServeMux
	routes   map[string]handler // by pattern
	lists    map[string]bool    // patterns of lists of records
	faults   *faultSet
	balancer *balancer
	requests *requestLog
	effects  map[string]func(*action) effect // by action command; called with mu held

	ctx        context.Context // ends with Close
	cancel     context.CancelFunc
	background sync.WaitGroup
	turns      sync.Map // server id → *sync.Mutex: see machineLock

	mu      sync.Mutex // guards everything below, and the records of the state
	state   *state
	bucket  *bucket
	random  *rand.Rand
	running bool // between Resume and Close
	past    past
}

// New reads the state in config.Dir, or begins an empty project. The API answers immediately, but actions and load
// balancers do not run before Resume.
func New(config Config) (*Cloud, error) {
	config, err := config.withDefaults()
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(config.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("creating the simulated cloud's folder: %w", err)
	}
	loaded, err := loadState(filepath.Join(config.Dir, "state.json"))
	if err != nil {
		return nil, err
	}
	for _, offered := range systemImages() {
		loaded.Images[offered.ID] = offered
	}
	requests, err := openRequestLog(config.RequestLog)
	if err != nil {
		return nil, err
	}
	c := &Cloud{
		config:   config,
		catalog:  newCatalog(),
		mux:      http.NewServeMux(),
		routes:   map[string]handler{},
		lists:    map[string]bool{},
		faults:   newFaultSet(rand.New(rand.NewPCG(config.Seed, 1))),
		balancer: newBalancer(config.Listen, config.Log),
		requests: requests,
		state:    loaded,
		bucket:   newBucket(config.RateLimit, now()),
		random:   rand.New(rand.NewPCG(config.Seed, 2)),
	}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	c.effects = c.serverEffects()
	maps.Copy(c.effects, c.loadBalancerEffects())
	c.effects["create_image"] = c.endCreateImage
	c.registerAll()
	return c, nil
}

// registerAll registers all endpoints of the API.
func (c *Cloud) registerAll() {
	c.registerCatalog()
	c.registerActions()
	register(c, c.networks())
	register(c, c.loadBalancers())
	register(c, c.servers())
	register(c, c.images())
	register(c, c.placementGroups())
	register(c, c.sshKeys())
	register(c, c.firewalls())
	register(c, c.primaryIPs())
	register(c, c.volumes())
	for path, create := range map[string]handler{
		"networks":         decoded(c.createNetwork),
		"load_balancers":   decoded(c.createLoadBalancer),
		"servers":          decoded(c.createServer),
		"placement_groups": decoded(c.createPlacementGroup),
		"ssh_keys":         decoded(c.createSSHKey),
		"firewalls":        decoded(c.createFirewall),
		"primary_ips":      decoded(c.createPrimaryIP),
		"volumes":          decoded(c.createVolume),
	} {
		c.handle("POST /"+path, create)
	}
	// Resources that the lab does not simulate cannot be created, so their lists are empty, and a search for leftovers is
	// correct.
	for kind, path := range map[string]string{"certificate": "certificates", "floating_ip": "floating_ips",
		"iso": "isos"} {
		register(c, resource[*meta]{kind: kind, path: path, view: func(one *meta) any { return one }})
	}
	c.handle("/", func(q *call) (any, error) { return nil, unknownPath(q.r) })
}

// Resume continues the work of the state that New read: it starts the machines of running servers, opens the load
// balancers' ports and continues unfinished actions.
func (c *Cloud) Resume(ctx context.Context) error {
	c.mu.Lock()
	var on []Server
	for _, one := range ordered(c.state.Servers) {
		if one.Status == statusRunning {
			on = append(on, c.machineView(one))
		}
	}
	c.mu.Unlock()

	// Machines first: continued actions may stop them.
	var failed []error
	for _, one := range on {
		if err := c.start(ctx, one); err != nil {
			failed = append(failed, fmt.Errorf("starting server %s again: %w", one.Name, err))
		}
	}

	c.mu.Lock()
	defer c.mu.Unlock()
	c.running = true
	for _, unfinished := range ordered(c.state.Actions) {
		if unfinished.Status == actionRunning && unfinished.After == 0 {
			c.schedule(unfinished)
		}
	}
	c.balancer.apply(c.frontends())
	return errors.Join(failed...)
}

// Close ends the goroutines of the Cloud and closes the load balancers' ports. The state is kept; the caller ends the
// machines. Closing twice is harmless.
func (c *Cloud) Close() error {
	c.mu.Lock()
	if c.ctx.Err() != nil {
		c.mu.Unlock()
		return nil
	}
	c.running = false
	c.cancel()
	c.mu.Unlock()
	c.background.Wait()
	c.balancer.close()
	c.mu.Lock()
	defer c.mu.Unlock()
	return errors.Join(c.save(), c.requests.close())
}

// keep saves the changed state and applies it to the load balancers.
func (c *Cloud) keep() {
	if err := c.save(); err != nil {
		c.config.Log.Error("the simulated cloud's state was not saved", "error", err)
	}
	if c.running {
		c.balancer.apply(c.frontends())
	}
}

func (c *Cloud) save() error {
	data, err := c.state.encode()
	if err != nil {
		return err
	}
	c.past.add(now(), data)
	return saveState(filepath.Join(c.config.Dir, "state.json"), data)
}

func now() time.Time { return time.Now() }

func idText(id int64) string { return strconv.FormatInt(id, 10) }

// idOrNameText is the id or name in a request.
func idOrNameText(wanted schema.IDOrName) string {
	if wanted.Name != "" {
		return wanted.Name
	}
	return idText(wanted.ID)
}
