package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
)

const (
	sideMake    = "make"
	sideSlipway = "slipway"

	markNodes = "nodes" // every node is Ready
	markPivot = "pivot" // the cluster manages itself and its controllers have looked at everything
)

// measured is one run of one side. Times are seconds since its process was started.
type measured struct {
	Pace  string             `json:"pace"`
	Pair  int                `json:"pair"`
	Side  string             `json:"side"`
	Load  string             `json:"load"` // of the machine in the last minute, before and after
	Marks map[string]float64 `json:"marks"`
	Steps []span             `json:"steps"`
}

// span is a step of the Makefile or of Slipway.
type span struct {
	Name  string  `json:"name"`
	Began float64 `json:"began"`
	Ended float64 `json:"ended"`
}

func readRuns(file string) ([]measured, error) {
	data, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var runs []measured
	if err := json.Unmarshal(data, &runs); err != nil {
		return nil, fmt.Errorf("read the figures in %s: %w", file, err)
	}
	return runs, nil
}

func writeRuns(file string, runs []measured) error {
	data, err := json.MarshalIndent(runs, "", "\t")
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(data, '\n'), 0o600)
}

// pairsOf is the number of the pace's pairs.
func pairsOf(runs []measured, pace string) (n int) {
	for _, r := range runs {
		if r.Pace == pace {
			n = max(n, r.Pair+1)
		}
	}
	return n
}

// spread is the median of some figures, and the smallest and the largest of them.
type spread struct{ median, least, most float64 }

func spreadOf(values []float64) spread {
	sorted := slices.Sorted(slices.Values(values))
	n := len(sorted)
	return spread{median: (sorted[(n-1)/2] + sorted[n/2]) / 2, least: sorted[0], most: sorted[n-1]}
}

func (s spread) seconds() string {
	return fmt.Sprintf("%.0f s (%.0f–%.0f)", s.median, s.least, s.most)
}
func (s spread) ratio() string { return fmt.Sprintf("%.2f (%.2f–%.2f)", s.median, s.least, s.most) }

// comparison are the times of both sides to a mark, and Slipway's in parts of the Makefile's, pair by pair.
type comparison struct{ makefile, slipway, ratios []float64 }

// compareAt leaves out pairs of which one run is missing.
func compareAt(runs []measured, pace, mark string) (c comparison) {
	for pair := range pairsOf(runs, pace) {
		at := map[string]float64{}
		for _, r := range runs {
			if seconds := r.Marks[mark]; r.Pace == pace && r.Pair == pair && seconds > 0 {
				at[r.Side] = seconds
			}
		}
		if len(at) == 2 {
			c.makefile = append(c.makefile, at[sideMake])
			c.slipway = append(c.slipway, at[sideSlipway])
			c.ratios = append(c.ratios, at[sideSlipway]/at[sideMake])
		}
	}
	return c
}

// printTables prints the comparison in Markdown: the whole, then by step.
func printTables(out io.Writer, runs []measured) error {
	var b strings.Builder
	b.WriteString("| pace | to | Makefile | Slipway | Slipway/Makefile | pairs |\n| --- | --- | --- | --- | --- | --- |\n")
	for _, pace := range pacesOf(runs) {
		for _, mark := range []struct{ key, name string }{{markNodes, "Ready nodes"}, {markPivot, "the settled pivot"}} {
			c := compareAt(runs, pace, mark.key)
			if len(c.ratios) == 0 {
				continue
			}
			fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %d |\n", pace, mark.name, spreadOf(c.makefile).seconds(),
				spreadOf(c.slipway).seconds(), spreadOf(c.ratios).ratio(), len(c.ratios))
		}
	}
	for _, pace := range pacesOf(runs) {
		for _, side := range []string{sideMake, sideSlipway} {
			printSteps(&b, runs, pace, side)
		}
	}
	_, err := io.WriteString(out, b.String())
	return err
}

func pacesOf(runs []measured) (paces []string) {
	for _, r := range runs {
		if !slices.Contains(paces, r.Pace) {
			paces = append(paces, r.Pace)
		}
	}
	return paces
}

// printSteps prints the median beginning, end and duration of each step of a side, in the order of their ends.
func printSteps(b *strings.Builder, runs []measured, pace, side string) {
	began, took, ended := map[string][]float64{}, map[string][]float64{}, map[string][]float64{}
	for _, r := range runs {
		if r.Pace != pace || r.Side != side {
			continue
		}
		for _, s := range r.Steps {
			began[s.Name] = append(began[s.Name], s.Began)
			took[s.Name] = append(took[s.Name], s.Ended-s.Began)
			ended[s.Name] = append(ended[s.Name], s.Ended)
		}
	}
	if len(ended) == 0 {
		return
	}
	var names []string
	for name := range ended {
		names = append(names, name)
	}
	slices.SortFunc(names, func(x, y string) int {
		switch a, b := spreadOf(ended[x]).median, spreadOf(ended[y]).median; {
		case a < b:
			return -1
		case a > b:
			return 1
		}
		return strings.Compare(x, y)
	})
	fmt.Fprintf(b, "\n| %s, %s pace | begins | takes | ends |\n| --- | --- | --- | --- |\n", side, pace)
	for _, name := range names {
		fmt.Fprintf(b, "| %s | %.1f | %.1f | %.1f |\n", name, spreadOf(began[name]).median, spreadOf(took[name]).median,
			spreadOf(ended[name]).median)
	}
}
