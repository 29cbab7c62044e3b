package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/slipway-k8s/slipway/lab/control"
	"github.com/slipway-k8s/slipway/lab/environment"
)

// status prints the parts of the lab that run.
func status(ctx context.Context, args []string) error {
	flags := newFlags("status")
	dir := flags.String("dir", "", "folder of the lab (required)")
	output := flags.String("output", "text", "text or json")
	if err := parse(flags, args); err != nil {
		return usageError{err}
	}
	if *dir == "" || *output != "text" && *output != "json" {
		return usageError{errors.New("status: want --dir D and --output text or json")}
	}
	s, err := environment.NewClient(*dir).Status(ctx)
	if err != nil {
		return err
	}
	if *output == "json" {
		e := json.NewEncoder(os.Stdout)
		e.SetIndent("", "  ")
		return e.Encode(s)
	}
	return printStatus(os.Stdout, s)
}

func printStatus(out io.Writer, s environment.Status) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "PART\tFIDELITY\tDETAIL")
	for _, p := range s.Parts {
		fmt.Fprintf(w, "%s\t%s\t%s\n", p.Name, p.Fidelity, p.Detail)
	}
	fmt.Fprintln(w, "\nCLUSTER\tKIND\tREADY\tENDPOINT")
	for _, c := range s.Clusters {
		fmt.Fprintf(w, "%s\t%s\t%v\t%s\t%s\n", c.Name, c.Kind, c.Ready, c.Endpoint, c.Reason)
	}
	if len(s.Servers) > 0 {
		fmt.Fprintln(w, "\nSERVER\tSTATUS\tPUBLIC\tPRIVATE\tTALOS\tETCD\tKUBERNETES\tAPISERVER\tNODE")
	}
	for _, v := range s.Servers {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", v.Name, v.Status, address(v.PublicIPv4), address(v.PrivateIPv4),
			v.Talos, v.Etcd, v.Kubernetes, v.APIServer, v.Node)
		for _, n := range v.Notes {
			fmt.Fprintf(w, "\t%s\n", n)
		}
	}
	if len(s.LoadBalancers) > 0 {
		fmt.Fprintln(w, "\nLOAD BALANCER\tPUBLIC\tPRIVATE\tPORTS (HEALTHY TARGETS)")
	}
	for _, b := range s.LoadBalancers {
		ports := make([]string, 0, len(b.Services))
		for _, v := range b.Services {
			ports = append(ports, fmt.Sprintf("%d to %d (%d of %d)", v.ListenPort, v.DestinationPort, v.Healthy, v.Targets))
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", b.Name, address(b.PublicIPv4), address(b.PrivateIP), strings.Join(ports, ", "))
	}
	fmt.Fprintln(w, "\nPROCESS\tPID\tMEMORY\tAGE\tCLUSTER\tPOD OR SERVER")
	var sum int64
	for _, p := range s.Processes {
		sum += p.RSSBytes
		fmt.Fprintf(w, "%s\t%d\t%s\t%s\t%s\t%s\n", p.Name, p.PID, mebibytes(p.RSSBytes),
			time.Since(p.StartedAt).Round(time.Second), p.Cluster, cmp.Or(p.Pod, p.Server))
	}
	fmt.Fprintf(w, "%d in total\t\t%s\n", len(s.Processes), mebibytes(sum))
	fmt.Fprintf(w, "\nNetwork: %s. On the host's loopback:\n", s.Isolation)
	for _, l := range s.Listeners {
		fmt.Fprintf(w, "  %s\n", l)
	}
	for _, n := range s.Notes {
		fmt.Fprintf(w, "Note: %s\n", n)
	}
	return w.Flush()
}

// address formats an address; empty if there is none.
func address(a netip.Addr) string {
	if !a.IsValid() {
		return ""
	}
	return a.String()
}

func mebibytes(n int64) string { return fmt.Sprintf("%d MiB", n>>20) }

// down ends the lab. It succeeds if no lab runs.
func down(ctx context.Context, args []string) error {
	flags := newFlags("down")
	dir := flags.String("dir", "", "folder of the lab (required)")
	if err := parse(flags, args); err != nil {
		return usageError{err}
	}
	if *dir == "" {
		return usageError{errors.New("down: --dir is required")}
	}
	err := environment.NewClient(*dir).Down(ctx)
	if errors.Is(err, control.ErrNotUp) {
		fmt.Println(err)
		return nil
	}
	return err
}
