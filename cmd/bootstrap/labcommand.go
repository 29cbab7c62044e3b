package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"text/tabwriter"
	"time"
	"unicode/utf8"

	"github.com/slipway-k8s/slipway/flow"
)

// labOf is the lab of the state folder that the arguments name.
func (c *command) labOf(a arguments) (*lab, error) {
	cfg, err := loadConfig(a, c.environment)
	if err != nil {
		return nil, err
	}
	return c.newLab(a.Options, newStateFolder(a.Options, cfg.ClusterName, c.workDir)), nil
}

func (c *command) labUp(ctx context.Context, a arguments) error {
	l, err := c.labOf(a)
	if err != nil {
		return err
	}
	return c.labTask(a.Options, func(say flow.Say) error {
		_, err := l.up(ctx, say)
		return err
	})
}

func (c *command) labBuild(ctx context.Context, a arguments) error {
	l, err := c.labOf(a)
	if err != nil {
		return err
	}
	if a.Options.Check {
		return l.built(ctx)
	}
	return c.labTask(a.Options, func(say flow.Say) error { return l.build(ctx, a.Options.Prune, say) })
}

func (c *command) labDown(ctx context.Context, a arguments) error {
	l, err := c.labOf(a)
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

func (c *command) labTask(o options, work func(flow.Say) error) error {
	h := &hub{hide: c.hide, displays: []display{c.display(o)}}
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

// labStatus prints what the lab tells. In JSON it is the lab's own words.
func (c *command) labStatus(ctx context.Context, a arguments) error {
	l, err := c.labOf(a)
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

// print writes the report, in lines of the terminal's width where there is one.
func (r labReport) print(out io.Writer, width int) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	row := func(cells ...any) {
		for i, cell := range cells {
			if i > 0 {
				fmt.Fprint(w, "\t")
			}
			fmt.Fprint(w, printable(fmt.Sprint(cell)))
		}
		fmt.Fprintln(w)
	}
	text := func(s string) {
		for _, line := range within(printable(s), width-1) {
			row(line)
		}
	}
	text("isolation: " + r.Isolation)
	fmt.Fprintln(w)
	row("PART", "IS", "DETAIL")
	taken := 0 // by the columns before the detail, with the space after each
	for _, p := range r.Parts {
		taken = max(taken, utf8.RuneCountInString(p.Name))
	}
	taken += len("stand-in") + 4
	for _, p := range r.Parts {
		for i, line := range within(printable(p.Detail), width-1-taken) {
			if i == 0 {
				row(p.Name, p.Fidelity, line)
			} else {
				row("", "", line)
			}
		}
	}
	if len(r.Clusters) > 0 {
		fmt.Fprintln(w)
		row("CLUSTER", "KIND", "READY", "ENDPOINT")
		for _, k := range r.Clusters {
			ready := fmt.Sprint(k.Ready)
			if k.Reason != "" {
				ready += " (" + k.Reason + ")"
			}
			row(k.Name, k.Kind, ready, k.Endpoint)
		}
	}
	if len(r.Servers) > 0 {
		fmt.Fprintln(w)
		row("SERVER", "ID", "STATUS", "PUBLIC", "PRIVATE", "TALOS", "ETCD", "API SERVER")
		for _, s := range r.Servers {
			row(s.Name, s.ID, s.Status, s.PublicIPv4, s.PrivateIPv4, s.Talos, s.Etcd, s.APIServer)
		}
	}
	if len(r.LoadBalancers) > 0 {
		fmt.Fprintln(w)
		row("LOAD BALANCER", "PUBLIC", "PRIVATE", "SERVICE", "HEALTHY TARGETS")
		for _, b := range r.LoadBalancers {
			if len(b.Services) == 0 {
				row(b.Name, b.PublicIPv4, b.PrivateIP, "none", "")
			}
			for _, s := range b.Services {
				healthy := fmt.Sprintf("%d of %d", s.Healthy, s.Targets)
				if !s.Listening {
					healthy += ": refuses connections"
				}
				row(b.Name, b.PublicIPv4, b.PrivateIP, fmt.Sprintf("%d to %d", s.ListenPort, s.DestinationPort), healthy)
			}
		}
	}
	if len(r.Processes) > 0 {
		const mib = 1 << 20
		total := int64(0)
		fmt.Fprintln(w)
		row("PROCESS", "PID", "OF", "UP", "MIB")
		for _, p := range r.Processes {
			row(p.Name, p.PID, strings.Join(strings.Fields(p.Cluster+" "+p.Server+" "+p.Pod), " "), elapsed(time.Since(p.StartedAt)), p.RSSBytes/mib)
			total += p.RSSBytes
		}
		row("", "", "", "", total/mib)
	}
	if len(r.Listeners) > 0 {
		fmt.Fprintln(w)
		text("listens on " + strings.Join(r.Listeners, ", "))
	}
	for _, f := range r.Faults {
		text(fmt.Sprintf("fault %d, as asked for: %s", f.ID, f.words()))
	}
	for _, n := range r.Notes {
		text("note: " + n)
	}
	return w.Flush()
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
