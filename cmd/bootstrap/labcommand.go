package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/slipway-k8s/slipway/flow"
)

// labOf is the lab of the state folder that the arguments name.
func labOf(ctx context.Context, c *console, a arguments) (*lab, error) {
	cfg, err := loadConfig(a, c.environment)
	if err != nil {
		return nil, err
	}
	if err := findLabImages(c, a.Options); err != nil {
		return nil, err
	}
	state, err := labStateOf(ctx, c, a, cfg)
	if err != nil {
		return nil, err
	}
	return newLab(c, a.Options, state), nil
}

// labImages is the path of the file with the lab's images; "" for none.
func labImages(c *console, o options) string {
	if o.LabImages == "" || filepath.IsAbs(o.LabImages) {
		return o.LabImages
	}
	return filepath.Join(c.workDir, o.LabImages)
}

// findLabImages finds a mistaken --lab-images before anything is made, and not when the lab is built and starts.
func findLabImages(c *console, o options) error {
	if o.LabImages == "" {
		return nil
	}
	info, err := os.Stat(labImages(c, o))
	if err == nil && info.IsDir() {
		err = errors.New("it is a folder")
	}
	if err != nil {
		return usagef("--lab-images %s: %w", o.LabImages, err)
	}
	return nil
}

func runLabUp(ctx context.Context, c *console, a arguments) error {
	l, err := labOf(ctx, c, a)
	if err != nil {
		return err
	}
	return labTask(c, a.Options, func(say flow.Say) error {
		_, err := l.up(ctx, say)
		return err
	})
}

func runLabBuild(ctx context.Context, c *console, a arguments) error {
	l, err := labOf(ctx, c, a)
	if err != nil {
		return err
	}
	if a.Options.Check {
		return l.built(ctx)
	}
	return labTask(c, a.Options, func(say flow.Say) error { return l.build(ctx, a.Options.Prune, say) })
}

func runLabDown(ctx context.Context, c *console, a arguments) error {
	l, err := labOf(ctx, c, a)
	if err != nil {
		return err
	}
	was, err := l.down(ctx)
	if err != nil {
		return err
	}
	if !was {
		fmt.Fprintf(c.stdout, "no lab is up in %s\n", l.dir)
		return nil
	}
	fmt.Fprintf(c.stdout, "the lab in %s is down; its state is kept\n", l.dir)
	return nil
}

// labTask shows work on the lab. It runs to its end even where the reader of the output is gone.
func labTask(c *console, o options, work func(flow.Say) error) error {
	outliveReaders()
	h := &hub{hide: c.hide, displays: []display{newDisplay(c, o)}}
	defer h.close()
	return h.task("lab", "asked for", work)
}

// labReport is what a lab tells of itself: GET /v1/status.
type labReport struct {
	Isolation string `json:"isolation"`
	Parts     []struct {
		Name, Fidelity, Detail string
	} `json:"parts"`
	Clusters []struct {
		Name, Kind, Endpoint, Reason string
		Ready                        bool
	} `json:"clusters"`
	Servers []struct {
		Name, Status, PublicIPv4, PrivateIPv4, Talos, Etcd, APIServer string
		ID                                                            int64
	} `json:"servers"`
	LoadBalancers []struct {
		Name, PublicIPv4, PrivateIP string
		Services                    []struct {
			ListenPort, DestinationPort, Healthy, Targets int
			Listening                                     bool
		}
	} `json:"loadBalancers"`
	Processes []struct {
		Name, Cluster, Pod, Server string
		PID                        int
		StartedAt                  time.Time
		RSSBytes                   int64
	} `json:"processes"`
	Faults    []labFault `json:"faults"`
	Listeners []string   `json:"listeners"`
	Notes     []string   `json:"notes"`
}

// runLabStatus prints what the lab tells. In JSON it is the lab's own words.
func runLabStatus(ctx context.Context, c *console, a arguments) error {
	l, err := labOf(ctx, c, a)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, labAnswerWithin)
	defer cancel()
	var raw json.RawMessage
	err = l.client.do(ctx, http.MethodGet, "/v1/status", &raw)
	if errors.Is(err, errLabDown) {
		if a.Options.Output == "json" {
			return printJSON(c.stdout, map[string]any{"up": false, "dir": l.dir})
		}
		fmt.Fprintf(c.stdout, "no lab is up in %s\n", l.dir)
		return nil
	}
	if err != nil {
		return err
	}
	if a.Options.Output == "json" {
		fields := map[string]json.RawMessage{}
		if err := json.Unmarshal(raw, &fields); err != nil {
			return fmt.Errorf("read the lab's status: %w", err)
		}
		fields["up"] = json.RawMessage("true")
		return printJSON(c.stdout, fields)
	}
	var report labReport
	if err := json.Unmarshal(raw, &report); err != nil {
		return fmt.Errorf("read the lab's status: %w", err)
	}
	return report.print(c.stdout, c.width())
}

// within breaks a text into lines of so many columns, where that is enough to
// read; otherwise there is no terminal, or none to be fitted.
func within(text string, columns int) []string {
	if columns < narrowest {
		return []string{text}
	}
	return wrap(text, columns, columns, 0)
}

func printJSON(out io.Writer, v any) error {
	encoder := json.NewEncoder(out)
	encoder.SetIndent("", "  ")
	return encoder.Encode(v)
}
