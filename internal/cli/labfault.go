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
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/slipway-k8s/slipway/internal/base/text"
	"github.com/slipway-k8s/slipway/internal/base/usage"
	"github.com/slipway-k8s/slipway/internal/cli/ui"
	"github.com/slipway-k8s/slipway/internal/provider/lab"
)

// runLabFaultAdd has something go wrong in the lab.
func runLabFaultAdd(ctx context.Context, c *call) error {
	_, _, l, err := labOf(ctx, c)
	if err != nil {
		return err
	}
	fault, err := lab.ParseFault(c.Targets[3:], filepath.Dir(l.Dir))
	if err != nil {
		return err
	}
	var raw json.RawMessage
	if err := l.Client.Send(ctx, http.MethodPost, "/v1/faults", fault, &raw); err != nil {
		return refusedFault(err)
	}
	if c.Output == "json" {
		return ui.PrintJSON(c.stdout, raw)
	}
	var begun lab.Fault
	if err := json.Unmarshal(raw, &begun); err != nil {
		return fmt.Errorf("read the lab's answer: %w", err)
	}
	return c.say("fault %d: %s", begun.ID, text.Printable(begun.Words()))
}

// runLabFaultList prints the faults in force.
func runLabFaultList(ctx context.Context, c *call) error {
	_, _, l, err := labOf(ctx, c)
	if err != nil {
		return err
	}
	var raw json.RawMessage
	if err := l.Client.Do(ctx, http.MethodGet, "/v1/faults", &raw); err != nil {
		return err
	}
	if c.Output == "json" {
		return ui.PrintJSON(c.stdout, raw)
	}
	var list struct{ Faults []lab.Fault }
	if err := json.Unmarshal(raw, &list); err != nil {
		return fmt.Errorf("read the lab's faults: %w", err)
	}
	if len(list.Faults) == 0 {
		return c.say("no fault is in force")
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
		fmt.Fprintf(w, "%d\t%s\t%d\t%s\t%s\n", f.ID, text.Printable(f.Words()), f.Hits, text.Elapsed(time.Since(f.Since)),
			ends)
	}
	return w.Flush()
}

// runLabFaultRemove ends a fault.
func runLabFaultRemove(ctx context.Context, c *call) error {
	_, _, l, err := labOf(ctx, c)
	if err != nil {
		return err
	}
	id, err := strconv.ParseUint(c.Targets[3], 10, 63)
	if err != nil {
		return usage.Errorf("%q is not a fault's number: lab fault list has them", c.Targets[3])
	}
	if err := l.Client.Do(ctx, http.MethodDelete, fmt.Sprintf("/v1/faults/%d", id), nil); err != nil {
		return refusedFault(err)
	}
	return c.say("fault %d is undone", id)
}

// refusedFault makes of what the lab does not take a mistake in the arguments.
func refusedFault(err error) error {
	refused, ok := errors.AsType[*lab.Error](err)
	if ok && (refused.Status == http.StatusBadRequest || refused.Status == http.StatusNotFound) {
		return usage.Errorf("%s", refused.Message)
	}
	return err
}

func newLabFaultCommand(c *call) *cobra.Command {
	return c.parent("fault", "", "manage faults of the lab: add, list, remove", newLabFaultAddCommand(c),
		c.command("list", "", "list the faults of the lab that are in effect", runLabFaultList),
		c.command("remove ID", "", "undo a fault", runLabFaultRemove))
}

// newLabFaultAddCommand has a command below it for each kind of fault.
func newLabFaultAddCommand(c *call) *cobra.Command {
	cmd := c.command("add KIND [key=value…]", "", "have the lab produce a fault: see docs/rehearse.md",
		runLabFaultAdd)
	for _, kind := range lab.FaultKinds() {
		below := c.command(kind.Name+" [key=value…]", "", kind.Doc, runLabFaultAdd)
		below.Long = aboutFault(kind)
		below.ValidArgsFunction = completeFault(kind)
		cmd.AddCommand(below)
	}
	return cmd
}

// aboutFault is what a kind of fault takes.
func aboutFault(kind lab.FaultKind) string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	kind.Describe(func(format string, args ...any) { fmt.Fprintf(w, format+"\n", args...) })
	_ = w.Flush()
	return strings.TrimSpace(b.String())
}
