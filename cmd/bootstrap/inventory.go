package main

import (
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/slipway-k8s/slipway/internal/hetzner"
	"github.com/slipway-k8s/slipway/steps"
)

// printDemolition lists what goes and what stays; as JSON in one line, like the
// events that follow it.
func (c *command) printDemolition(d steps.Demolition, output string) error {
	monthly := hetzner.Total(d.Take)
	if output == "json" {
		return newJSONLine(c.stdout, map[string]any{"kind": "destroy-plan", "cluster": d.Cluster, "take": d.Take, "keep": d.Keep, "monthly": monthly})
	}
	if len(d.Take) == 0 {
		fmt.Fprintf(c.stdout, "nothing of cluster %s is at Hetzner\n", d.Cluster)
	} else {
		fmt.Fprintf(c.stdout, "of cluster %s go, for good:\n\n", d.Cluster)
		if err := printResources(c.stdout, d.Take); err != nil {
			return err
		}
		fmt.Fprintf(c.stdout, "\ntogether %s a month, VAT included\n", total(monthly))
	}
	for _, k := range d.Keep {
		fmt.Fprintf(c.stdout, "stays: %s, %s a month; it %s\n", printable(k.String()), k.Price, printable(k.Why))
	}
	return nil
}

// printLeftovers lists what is there, of every cluster.
func (c *command) printLeftovers(resources []hetzner.Resource, output string) error {
	monthly := hetzner.Total(resources)
	if output == "json" {
		if resources == nil {
			resources = []hetzner.Resource{}
		}
		return newJSONLine(c.stdout, map[string]any{"kind": "leftovers", "resources": resources, "monthly": monthly})
	}
	if len(resources) == 0 {
		_, err := fmt.Fprintln(c.stdout, "nothing in this project belongs to a cluster")
		return err
	}
	if err := printResources(c.stdout, resources); err != nil {
		return err
	}
	_, err := fmt.Fprintf(c.stdout, "\ntogether %s a month, VAT included; `destroy CLUSTER_NAME=…` takes a cluster's away\n", total(monthly))
	return err
}

// total says that the sum is not all where a price is unknown.
func total(p hetzner.Price) string {
	sum := fmt.Sprintf("%.2f %s", p.Monthly, p.Currency)
	if p.Unknown {
		return sum + " and what has no price in Hetzner's list"
	}
	return sum
}

func printResources(out io.Writer, resources []hetzner.Resource) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "CLUSTER\tWHAT\tID\tNAME\tTYPE\tLOCATION\tA MONTH\tBECAUSE OF")
	for _, r := range resources {
		because := r.Because
		if r.Shared != "" {
			because += "; but " + r.Shared
		}
		fmt.Fprintf(w, "%s\t%s\t%d\t%s\t%s\t%s\t%s\t%s\n", dash(r.Cluster), r.Kind, r.ID, printable(r.Name), dash(r.Type), dash(r.Location), r.Price, printable(because))
	}
	return w.Flush()
}

func dash(s string) string {
	if s == "" {
		return "-"
	}
	return printable(s)
}
