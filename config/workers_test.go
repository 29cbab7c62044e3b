package config

import (
	"strings"
	"testing"
)

func TestGroupsOfAPoolFitIntoAPlacementGroup(t *testing.T) {
	for what, tt := range map[string]struct {
		pool WorkerPool
		want string
	}{
		"one":           {WorkerPool{Name: "a", Replicas: 3}, "a 3"},
		"none":          {WorkerPool{Name: "a"}, "a 0"},
		"full":          {WorkerPool{Name: "a", Replicas: 9}, "a 9"},
		"two groups":    {WorkerPool{Name: "a", Replicas: 10}, "a 9, a-2 1"},
		"three groups":  {WorkerPool{Name: "a", Replicas: 25}, "a 9, a-2 9, a-3 7"},
		"autoscaled":    {WorkerPool{Name: "a", Min: 2, Max: 5}, "a 2-5"},
		"autoscaled, 2": {WorkerPool{Name: "a", Min: 2, Max: 12}, "a 2-9, a-2 0-3"},
	} {
		var got []string
		for _, g := range tt.pool.Groups() {
			if g.Max > 0 {
				got = append(got, g.Name+" "+(WorkerPool{Min: g.Min, Max: g.Max}).size("-"))
			} else {
				got = append(got, g.Name+" "+(WorkerPool{Replicas: g.Replicas}).Size())
			}
			if max(g.Replicas, g.Max) > PoolGroupHolds {
				t.Errorf("%s: %+v does not fit", what, g)
			}
		}
		if is := strings.Join(got, ", "); is != tt.want {
			t.Errorf("%s: %s, want %s", what, is, tt.want)
		}
	}
}

// size is Size with another word between the numbers.
func (p WorkerPool) size(to string) string { return strings.ReplaceAll(p.Size(), " to ", to) }

func TestWorkersVariable(t *testing.T) {
	c := Defaults()
	setVariable(t, &c, "WORKERS=3")
	setVariable(t, &c, "WORKER_SERVER_TYPE=cx43")
	if len(c.Workers) != 1 || c.Workers[0].Name != "general" || c.Workers[0].Replicas != 3 ||
		c.Pool(c.Workers[0]).ServerType != "cx43" || c.Pool(c.Workers[0]).Location != "nbg1" || len(c.Validate()) > 0 {
		t.Errorf("%+v, %v", c.Workers, c.Validate())
	}
	for _, none := range []string{"WORKERS=0", "WORKERS="} {
		setVariable(t, &c, none)
		if c.Workers != nil {
			t.Errorf("%s: %+v", none, c.Workers)
		}
	}
	for _, v := range Variables() {
		if v.Name != "WORKERS" {
			continue
		}
		for _, bad := range []string{"-1", "many"} {
			if err := v.Set(&c, bad); err == nil || !strings.Contains(err.Error(), "WORKERS") {
				t.Errorf("%s: %v", bad, err)
			}
		}
	}
}

func TestWrongWorkerPools(t *testing.T) {
	good := WorkerPool{Name: "db", Replicas: 3, Location: "fsn1", ServerType: "cx43,cpx41",
		Labels: map[string]string{"team": "a", "node-role.kubernetes.io/db": "", "example.com/b": "c"},
		Taints: []Taint{{Key: "dedicated", Value: "db", Effect: "NoSchedule"}}}
	c := Defaults()
	c.Workers = WorkerPools{good, {Name: "web", Min: 0, Max: 4}}
	if errs := c.Validate(); len(errs) > 0 {
		t.Fatalf("%v", errs)
	}
	for says, wrong := range map[string]func(*WorkerPool){
		`workers[0].name: "Db" is not a DNS label`:             func(p *WorkerPool) { p.Name = "Db" },
		`"control-plane" is the control plane's`:               func(p *WorkerPool) { p.Name = "control-plane" },
		`is too long: servers are called`:                      func(p *WorkerPool) { p.Name = strings.Repeat("a", 60) },
		`workers[1].name: "web" is a second pool`:              func(p *WorkerPool) { p.Name = "web" },
		`workers[0].replicas: "-1" is negative`:                func(p *WorkerPool) { p.Replicas = -1 },
		`workers[0].replicas: "501" is more than`:              func(p *WorkerPool) { p.Replicas = 501 },
		`workers[0].replicas: "3" is given together with max`:  func(p *WorkerPool) { p.Max = 4 },
		`workers[0].min: "2" is given without max`:             func(p *WorkerPool) { p.Min = 2 },
		`workers[0].min: "5" is more than max 4`:               func(p *WorkerPool) { p.Replicas, p.Min, p.Max = 0, 5, 4 },
		`workers[0].location: "mars" is not a location`:        func(p *WorkerPool) { p.Location = "mars" },
		`workers[0].serverType: "CX" is not a server type`:     func(p *WorkerPool) { p.ServerType = "CX" },
		`workers[0].taints[0].effect: "Maybe" is no effect`:    func(p *WorkerPool) { p.Taints = []Taint{{"a", "", "Maybe"}} },
		`workers[0].taints[0].key: "a b" is not a taint`:       func(p *WorkerPool) { p.Taints = []Taint{{"a b", "", "NoExecute"}} },
		`workers[0].labels.a b: "a b" is not a label's name`:   func(p *WorkerPool) { p.Labels = map[string]string{"a b": ""} },
		`workers[0].labels.a: "b c" cannot be a label's value`: func(p *WorkerPool) { p.Labels = map[string]string{"a": "b c"} },
		`cannot be set by a worker's kubelet`: func(p *WorkerPool) {
			p.Labels = map[string]string{"storage.kubernetes.io/a": "b"}
		},
		`makes the node one of the control plane`: func(p *WorkerPool) {
			p.Labels = map[string]string{"node-role.kubernetes.io/control-plane": ""}
		},
		`is set by the kubelet or`:                                 func(p *WorkerPool) { p.Labels = map[string]string{"kubernetes.io/hostname": "x"} },
		`workers[0].image: "a/b" cannot be a label`:                func(p *WorkerPool) { p.Image = "a/b" },
		`workers[0].schematic: "gpu" is given together with image`: func(p *WorkerPool) { p.Image, p.Schematic = "a", "gpu" },
		`workers[0].schematic: "../gpu" is not a DNS label`:        func(p *WorkerPool) { p.Schematic = "../gpu" },
		`is too long: the image is called talos-amd64-v1.13.9-aaa`: func(p *WorkerPool) { p.Schematic = strings.Repeat("a", 50) },
		`workers[0].patches[0]: " " is empty`:                      func(p *WorkerPool) { p.Patches = []string{" "} },
		`podCidr: "10.10.128.0/17" is too small`:                   func(p *WorkerPool) { p.Replicas = 130 },
		`controlPlaneCidr: "10.10.64.0/25" is too`:                 func(p *WorkerPool) { p.Replicas = 126 },
	} {
		c := c
		pool := good
		wrong(&pool)
		c.Workers = WorkerPools{pool, {Name: "web", Max: 4}}
		var found []string
		for _, e := range c.Validate() {
			found = append(found, e.Error())
		}
		if !strings.Contains(strings.Join(found, "\n"), says) {
			t.Errorf("%q is not in %q", says, found)
		}
	}
	c.Workers = WorkerPools{{Name: "a", Replicas: 10}, {Name: "a-2", Replicas: 1}}
	if errs := c.Validate(); len(errs) != 1 || !strings.Contains(errs[0].Error(), "both need the name a-2") {
		t.Errorf("%v", errs)
	}
}
