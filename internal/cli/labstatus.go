package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/slipway-k8s/slipway/internal/cli/ui"
	"github.com/slipway-k8s/slipway/internal/provider/lab"
)

// labDown is what lab status prints as JSON where no lab is up.
type labDown struct {
	Up  bool   `json:"up"` // false
	Dir string `json:"dir"`
}

// runLabStatus prints what the lab reports. As JSON it is the lab's own answer.
func runLabStatus(ctx context.Context, c *call) error {
	k, _, l, err := labOf(ctx, c)
	if err != nil {
		return err
	}
	replaces := lab.Replaces(k.Cfg)
	raw, err := l.Status(ctx)
	if errors.Is(err, lab.ErrDown) {
		return c.print(labDown{Dir: l.Dir}, func(io.Writer, int) error { return c.say("no lab is up in %s", l.Dir) })
	}
	if err != nil {
		return err
	}
	if c.Output == "json" {
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
