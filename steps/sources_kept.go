package steps

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/platform"
)

// keptFile is the file of the state folder with the texts that steps were made from, each under its hash. The journal
// knows the hashes alone, because people put secrets into values files; this file is closed to others, as the kubeconfigs
// are.
const keptFile = "sources.json"

// KeepSources keeps a copy of every file that the plan is made from, so that a later plan can say what was changed in it.
// Copies that nothing in the journal was made from are dropped.
func (p *Plan) KeepSources(ctx context.Context, j flow.Journal) error {
	snapshot, err := j.Load(ctx)
	if err != nil {
		return err
	}
	recorded, err := json.Marshal(snapshot.Steps)
	if err != nil {
		return fmt.Errorf("look for what the journal was made from: %w", err)
	}
	keep := map[string]string{}
	for sum, text := range keptSource(p.b.tools) {
		if strings.Contains(string(recorded), sum) {
			keep[sum] = text
		}
	}
	for _, s := range p.b.sources.All() {
		text, err := s.Effective(p.b.sources.Vars)
		if err != nil {
			return err
		}
		keep[text.Sum()] = string(text.Data)
	}
	data, err := json.MarshalIndent(keep, "", "  ")
	if err == nil {
		err = p.b.tools.Files.Write(keptFile, append(data, '\n'))
	}
	if err != nil {
		return fmt.Errorf("keep a copy of what the steps are made from: %w", err)
	}
	return nil
}

// keptSource are the copies, by hash. None are no reason for anything but a less telling plan.
func keptSource(tools platform.Tools) map[string]string {
	data, err := tools.Files.Read(keptFile)
	if err != nil {
		return nil
	}
	copies := map[string]string{}
	if json.Unmarshal(data, &copies) != nil {
		return nil
	}
	return copies
}
