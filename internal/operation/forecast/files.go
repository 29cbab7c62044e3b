package forecast

import (
	"fmt"
	"strings"

	"github.com/slipway-k8s/slipway/internal/cluster/render"
)

// UsedFiles says in one line which files of the operator's own are used; empty
// where nothing differs from what is built in.
func UsedFiles(files []render.SourceFile) string {
	words := map[render.FileUse]string{
		render.FileReplaces: "in place of the built-in one", render.FileMerged: "merged over the built-in values",
		render.FileAdded: "applied besides",
	}
	var used []string
	for _, f := range files {
		if f.Use != render.FileBuiltIn && !f.Same {
			used = append(used, fmt.Sprintf("%s (%s)", f.Path, words[f.Use]))
		}
	}
	if len(used) == 0 {
		return ""
	}
	return fmt.Sprintf("files: %s; built-in: the other %d", strings.Join(used, ", "), len(files)-len(used))
}
