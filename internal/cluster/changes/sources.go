package changes

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/cluster/render"
	"github.com/slipway-k8s/slipway/platform"
)

// KeptSourcesFile is the file of the state folder with the texts that steps were made from, each under its hash. The
// journal knows the hashes alone, because people put secrets into values files; this file is closed to others, as the
// kubeconfigs are.
const KeptSourcesFile = "sources.json"

// KeepSources keeps a copy of every file that the steps are made from, so that a later plan can say what was changed in
// it. Copies that nothing in the journal was made from are dropped.
func KeepSources(ctx context.Context, tools platform.Tools, sources render.Sources, j flow.Journal) error {
	snapshot, err := j.Load(ctx)
	if err != nil {
		return err
	}
	recorded, err := json.Marshal(snapshot.Steps)
	if err != nil {
		return fmt.Errorf("read the texts that the journal's digests are of: %w", err)
	}
	brought, _ := tools.Files.Read(appliedFile) // where it is lost the journal counts
	recorded = append(recorded, brought...)
	keep := map[string]string{}
	for sum, text := range KeptSources(tools) {
		if strings.Contains(string(recorded), sum) {
			keep[sum] = text
		}
	}
	for _, s := range sources.All() {
		text, err := s.Effective(sources.Vars)
		if err != nil {
			return err
		}
		keep[text.Sum()] = string(text.Data)
	}
	data, err := json.MarshalIndent(keep, "", "  ")
	if err == nil {
		err = tools.Files.Write(KeptSourcesFile, append(data, '\n'))
	}
	if err != nil {
		return fmt.Errorf("keep a copy of the files that the steps use: %w", err)
	}
	return nil
}

// KeptSources are the copies, by hash. None are no reason for anything but a less telling plan.
func KeptSources(tools platform.Tools) map[string]string {
	data, err := tools.Files.Read(KeptSourcesFile)
	if err != nil {
		return nil
	}
	copies := map[string]string{}
	if json.Unmarshal(data, &copies) != nil {
		return nil
	}
	return copies
}
