package cli

import (
	"bytes"
	"fmt"
	"io"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/slipway-k8s/slipway/internal/base/text"
	"github.com/slipway-k8s/slipway/internal/provider/lab"
)

// labReport is what lab status prints.
type labReport struct {
	lab.Status
	replaces []lab.Decision
}

// print writes it, in lines of the terminal's width where there is one.
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
