package cli

import (
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/base/diagram"
	"github.com/slipway-k8s/slipway/internal/state/statedir"
)

var mermaidFence = regexp.MustCompile("(?s)```mermaid\n(.*?)```")

// The picture in the documentation is that of the code.
func TestGraphInDocs(t *testing.T) {
	const page = "../../docs/graph.md"
	drawn := diagram.Drawing(offlinePlan(t).Graph, nil).Mermaid()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	found := mermaidFence.FindSubmatch(text)
	if found == nil {
		t.Fatalf("%s has no picture", page)
	}
	if string(found[1]) == drawn {
		return
	}
	if !*update {
		t.Fatalf("%s does not show the graph as the code has it; -update draws it", page)
	}
	text = mermaidFence.ReplaceAllLiteral(text, []byte("```mermaid\n"+drawn+"```"))
	if err := os.WriteFile(page, text, 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestGraphShowsTheJournal(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	state := statedir.New("", "k8s", dir)
	record := func(state flow.State) flow.Record {
		return flow.Record{State: state, Started: time.Now(), Output: json.RawMessage("{}")}
	}
	err := state.Journal().Save(t.Context(), flow.Snapshot{Format: flow.Format, Graph: "slipway",
		Steps: map[string]flow.Record{
			"preflight": record(flow.StateDone), "kind-create": record(flow.StateFailed), "image": record(flow.StateInterrupted),
			"firewall": record(flow.StateStarted),
		}})
	if err != nil {
		t.Fatal(err)
	}
	before := folderContents(t, dir)
	mermaid := execute(t, t.Context(), dir, "", "graph")
	for _, want := range []string{"class step_preflight done\n", "class step_kind_create failed\n",
		"class step_image interrupted\n", "class step_firewall started\n"} {
		if mermaid.code != ExitDone || !strings.Contains(mermaid.stdout, want) {
			t.Errorf("graph does not say %q: %+v", want, mermaid)
		}
	}
	dot := execute(t, t.Context(), dir, "", "graph", "--output", "dot")
	if !strings.Contains(dot.stdout, "(failed)") || !strings.Contains(dot.stdout, `"preflight" -> "image" [style=solid]`) {
		t.Errorf("dot: %+v", dot)
	}
	svg := execute(t, t.Context(), dir, "", "--output=svg", "graph")
	if !strings.Contains(svg.stdout, "(interrupted)") {
		t.Errorf("svg: %+v", svg)
	}
	decoder := xml.NewDecoder(strings.NewReader(svg.stdout))
	for {
		if _, err := decoder.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
	var described struct {
		Steps []struct {
			Name, State string
			Behind      []flow.Link
		}
	}
	r := execute(t, t.Context(), dir, "", "graph", "--output", "json")
	if err := json.Unmarshal([]byte(r.stdout), &described); err != nil || len(described.Steps) < 15 {
		t.Errorf("json: %+v, %v", r, err)
	} else if s := described.Steps[2]; s.Name != "image" || s.State != "interrupted" || len(s.Behind) != 2 ||
		s.Behind[0].Kind != flow.LinkArgument {
		t.Errorf("json describes image as %+v", s)
	}
	if after := folderContents(t, dir); after != before {
		t.Errorf("it changed the folder: before\n%s\nafter\n%s", before, after)
	}
	if r := execute(t, t.Context(), dir, "", "status", "--output", "svg"); r.code != ExitUsage {
		t.Errorf("status as a picture: %+v", r)
	}
}
