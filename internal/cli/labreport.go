package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/slipway-k8s/slipway/internal/base/text"
	"github.com/slipway-k8s/slipway/internal/cli/ui"
	"github.com/slipway-k8s/slipway/internal/provider/lab"
)

// print writes the report, in lines of the terminal's width where there is one.
func (r labReport) print(out io.Writer, width int) error {
	var words bytes.Buffer
	say := func(sentence string) {
		for _, line := range text.Within(text.Printable(sentence), width-1) {
			fmt.Fprintln(&words, line)
		}
	}
	list := func(head string, rows ...[]string) {
		if len(rows) == 0 {
			return
		}
		for _, row := range rows {
			for i := range row {
				row[i] = text.Printable(row[i])
			}
		}
		fmt.Fprintln(&words)
		text.Table(&words, width, strings.Split(head, "|"), rows...)
	}
	say("isolation: " + r.Isolation)
	list("PART|IS|DETAIL", r.parts()...)
	list("CONFIGURED|IN PLACE OF THE LAB'S MANIFESTS OR CHARTS", r.replaced()...)
	list("CLUSTER|KIND|READY|ENDPOINT", r.clusters()...)
	list("SERVER|ID|STATUS|PUBLIC|PRIVATE|TALOS|ETCD|KUBERNETES|API SERVER", r.servers()...)
	list("LOAD BALANCER|PUBLIC|PRIVATE|SERVICE|HEALTHY TARGETS", r.loadBalancers()...)
	list("PROCESS|PID|UP|MIB|OF", r.processes()...)
	if len(r.Listeners) > 0 {
		fmt.Fprintln(&words)
		say("listens on " + strings.Join(r.Listeners, ", "))
	}
	for _, f := range r.Faults {
		say(fmt.Sprintf("fault %d, as asked for: %s", f.ID, f.Words()))
	}
	for _, n := range r.Notes {
		say("note: " + n)
	}
	_, err := out.Write(words.Bytes())
	return err
}

func (r labReport) parts() (rows [][]string) {
	for _, p := range r.Parts {
		rows = append(rows, []string{p.Name, p.Fidelity, p.Detail})
	}
	return rows
}

// replaced are the configured repositories; the lab does not know of them.
func (r labReport) replaced() (rows [][]string) {
	for _, d := range r.replaces {
		rows = append(rows, []string{d.Variable, d.Value})
	}
	return rows
}

func (r labReport) clusters() (rows [][]string) {
	for _, k := range r.Clusters {
		ready := fmt.Sprint(k.Ready)
		if k.Reason != "" {
			ready += " (" + k.Reason + ")"
		}
		rows = append(rows, []string{k.Name, k.Kind, ready, k.Endpoint})
	}
	return rows
}

func (r labReport) servers() (rows [][]string) {
	for _, s := range r.Servers {
		rows = append(rows, []string{s.Name, strconv.FormatInt(s.ID, 10), s.Status, s.PublicIPv4, s.PrivateIPv4, s.Talos,
			s.Etcd, s.Kubernetes, s.APIServer})
	}
	return rows
}

func (r labReport) loadBalancers() (rows [][]string) {
	for _, b := range r.LoadBalancers {
		if len(b.Services) == 0 {
			rows = append(rows, []string{b.Name, b.PublicIPv4, b.PrivateIP, "none", ""})
		}
		for _, s := range b.Services {
			healthy := fmt.Sprintf("%d of %d", s.Healthy, s.Targets)
			if !s.Listening {
				healthy += ": refuses connections"
			}
			rows = append(rows, []string{b.Name, b.PublicIPv4, b.PrivateIP,
				fmt.Sprintf("%d to %d", s.ListenPort, s.DestinationPort), healthy})
		}
	}
	return rows
}

// processes have the short names of their programs: a process's own name begins with the Pod's or the server's, which
// are beside it.
func (r labReport) processes() (rows [][]string) {
	const mib = 1 << 20
	total := int64(0)
	for _, p := range r.Processes {
		of := strings.Join(strings.Fields(p.Cluster+" "+p.Server+" "+p.Pod), " ")
		rows = append(rows, []string{path.Base(p.Name), strconv.Itoa(p.PID), text.Elapsed(time.Since(p.StartedAt)),
			strconv.FormatInt(p.RSSBytes/mib, 10), of})
		total += p.RSSBytes
	}
	if len(rows) > 0 {
		rows = append(rows, []string{"together", "", "", strconv.FormatInt(total/mib, 10), ""})
	}
	return rows
}

// labReport is what a lab reports about itself: GET /v1/status.
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
		Name, Status, PublicIPv4, PrivateIPv4, Talos, Etcd, APIServer, Kubernetes string
		ID                                                                        int64
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
	Faults    []lab.Fault `json:"faults"`
	Listeners []string    `json:"listeners"`
	Notes     []string    `json:"notes"`

	replaces []lab.Decision
}

// labDown is what lab status prints as JSON where no lab is up.
type labDown struct {
	Up  bool   `json:"up"` // false
	Dir string `json:"dir"`
}

// runLabStatus prints what the lab reports. As JSON it is the lab's own answer.
func runLabStatus(ctx context.Context, c *console, a arguments) error {
	configuration, _, err := labConfigAndState(ctx, c, a)
	if err != nil {
		return err
	}
	l, err := labOf(ctx, c, a)
	if err != nil {
		return err
	}
	replaces := lab.Replaces(configuration)
	ctx, cancel := context.WithTimeout(ctx, lab.AnswerWithin)
	defer cancel()
	var raw json.RawMessage
	err = l.Client.Do(ctx, http.MethodGet, "/v1/status", &raw)
	if errors.Is(err, lab.ErrDown) {
		if a.Options.Output == "json" {
			return ui.PrintJSON(c.stdout, labDown{Dir: l.Dir})
		}
		fmt.Fprintf(c.stdout, "no lab is up in %s\n", l.Dir)
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
		repositories := map[string]string{}
		for _, d := range replaces {
			repositories[d.Variable] = d.Value
		}
		if fields["configured"], err = json.Marshal(repositories); err != nil {
			return err
		}
		return ui.PrintJSON(c.stdout, fields)
	}
	report := labReport{replaces: replaces}
	if err := json.Unmarshal(raw, &report); err != nil {
		return fmt.Errorf("read the lab's status: %w", err)
	}
	return report.print(c.stdout, c.width())
}

func newLabStatusCommand(in *invocation) *cobra.Command {
	return in.command("status", "", "show what runs in the lab, and what of it is real, a stand-in or simulated",
		runLabStatus)
}
