package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strconv"
	"text/tabwriter"
	"time"

	"github.com/slipway-k8s/slipway/internal/cli/ui"
	"github.com/slipway-k8s/slipway/internal/lab"
	"github.com/slipway-k8s/slipway/internal/text"
	"github.com/slipway-k8s/slipway/internal/usage"
)

// runLabFaultAdd has something go wrong in the lab.
func runLabFaultAdd(ctx context.Context, c *console, a arguments) error {
	l, err := labOf(ctx, c, a)
	if err != nil {
		return err
	}
	fault, err := lab.ParseFault(a.Targets[3:], filepath.Dir(l.Dir))
	if err != nil {
		return err
	}
	var raw json.RawMessage
	if err := l.Client.Send(ctx, http.MethodPost, "/v1/faults", fault, &raw); err != nil {
		return refusedFault(err)
	}
	if a.Options.Output == "json" {
		return ui.PrintJSON(c.stdout, raw)
	}
	var begun lab.Fault
	if err := json.Unmarshal(raw, &begun); err != nil {
		return fmt.Errorf("read the lab's answer: %w", err)
	}
	fmt.Fprintf(c.stdout, "fault %d: %s\n", begun.ID, text.Printable(begun.Words()))
	return nil
}

// runLabFaultList prints the faults in force.
func runLabFaultList(ctx context.Context, c *console, a arguments) error {
	l, err := labOf(ctx, c, a)
	if err != nil {
		return err
	}
	var raw json.RawMessage
	if err := l.Client.Do(ctx, http.MethodGet, "/v1/faults", &raw); err != nil {
		return err
	}
	if a.Options.Output == "json" {
		return ui.PrintJSON(c.stdout, raw)
	}
	var list struct{ Faults []lab.Fault }
	if err := json.Unmarshal(raw, &list); err != nil {
		return fmt.Errorf("read the lab's faults: %w", err)
	}
	if len(list.Faults) == 0 {
		fmt.Fprintln(c.stdout, "no fault is in force")
		return nil
	}
	return printFaults(c.stdout, list.Faults)
}

func printFaults(out io.Writer, faults []lab.Fault) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "ID\tFAULT\tHITS\tSINCE\tENDS IN")
	for _, f := range faults {
		ends := "-"
		if !f.Until.IsZero() {
			ends = text.Elapsed(time.Until(f.Until))
		}
		fmt.Fprintf(w, "%d\t%s\t%d\t%s\t%s\n", f.ID, text.Printable(f.Words()), f.Hits, text.Elapsed(time.Since(f.Since)), ends)
	}
	return w.Flush()
}

// runLabFaultRemove ends a fault.
func runLabFaultRemove(ctx context.Context, c *console, a arguments) error {
	l, err := labOf(ctx, c, a)
	if err != nil {
		return err
	}
	id, err := strconv.ParseUint(a.Targets[3], 10, 63)
	if err != nil {
		return usage.Errorf("%q is not a fault's number: lab fault list has them", a.Targets[3])
	}
	if err := l.Client.Do(ctx, http.MethodDelete, fmt.Sprintf("/v1/faults/%d", id), nil); err != nil {
		return refusedFault(err)
	}
	fmt.Fprintf(c.stdout, "fault %d is undone\n", id)
	return nil
}

// refusedFault makes of what the lab does not take a mistake in the arguments.
func refusedFault(err error) error {
	refused, ok := errors.AsType[*lab.Error](err)
	if ok && (refused.Status == http.StatusBadRequest || refused.Status == http.StatusNotFound) {
		return usage.Errorf("%s", refused.Message)
	}
	return err
}
