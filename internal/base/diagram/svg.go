package diagram

import (
	"cmp"
	"fmt"
	"html"
	"strings"
)

// SVG is the graph as a self-contained picture.
func (g Graph) SVG() string {
	l := g.arrange()
	width := 0.0
	for _, row := range l.layers {
		end := row[len(row)-1]
		width = max(width, end.x+end.width/2)
	}
	width += margin
	legend := g.legend()
	width = max(width, legend.width+2*margin)
	bottom := float64(2*margin + (len(l.layers)-1)*layerHeight + boxHeight)

	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %.0f %.0f" width="%.0f" height="%.0f" role="img" font-family="ui-sans-serif, system-ui, sans-serif" font-size="13">`+"\n",
		width, bottom+legendHeight, width, bottom+legendHeight)
	fmt.Fprintf(&b, "<title>%s</title>\n", html.EscapeString(cmp.Or(g.Title, "The steps of "+g.Name+", and what each hangs on")))
	b.WriteString(`<defs><marker id="arrow" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" markerHeight="7" orient="auto-start-reverse"><path d="M0,1 L10,5 L0,9 z" fill="#6b7280"/></marker></defs>` + "\n")
	b.WriteString(`<rect width="100%" height="100%" rx="8" fill="#ffffff"/>` + "\n")
	for i, e := range g.Edges {
		b.WriteString(line(path(l.routes[i]), e.Kind))
	}
	for _, row := range l.layers {
		for _, s := range row {
			if s.node >= 0 {
				b.WriteString(box(g.Nodes[s.node], s.x, s.top(), s.width))
			}
		}
	}
	legend.write(&b, (width-legend.width)/2, bottom)
	b.WriteString("</svg>\n")
	return b.String()
}

func (s *spot) top() float64 { return float64(margin + s.layer*layerHeight) }

// path leads from the first box's lower edge to the last one's upper edge, upright through the lanes between them.
func path(route []*spot) string {
	var b strings.Builder
	x, y := route[0].x, route[0].top()+boxHeight
	fmt.Fprintf(&b, "M%.1f,%.1f", x, y)
	for _, s := range route[1:] {
		bend := (s.top() - y) / 2
		fmt.Fprintf(&b, " C%.1f,%.1f %.1f,%.1f %.1f,%.1f", x, y+bend, s.x, s.top()-bend, s.x, s.top())
		x, y = s.x, s.top()
		if s.node < 0 {
			y += boxHeight
			fmt.Fprintf(&b, " V%.1f", y)
		}
	}
	return b.String()
}

func line(path string, kind Kind) string {
	dashes := map[Kind]string{After: ` stroke-dasharray="7 4"`, Yields: ` stroke-dasharray="2 4"`}[kind]
	return fmt.Sprintf(`<path d="%s" fill="none" stroke="#6b7280" stroke-width="1.4"%s marker-end="url(#arrow)"/>`+"\n",
		path, dashes)
}

// box draws a node with its middle at x; a point of no return has pointed ends.
func box(n Node, x, top, width float64) string {
	c := n.State.colours()
	left, right, bottom, middle := x-width/2, x+width/2, top+boxHeight, top+boxHeight/2
	shape := fmt.Sprintf(`<rect x="%.1f" y="%.1f" width="%.1f" height="%d" rx="6"`, left, top, width, boxHeight)
	if n.Seal {
		const point = 12
		shape = fmt.Sprintf(`<polygon points="%.1f,%.1f %.1f,%.1f %.1f,%.1f %.1f,%.1f %.1f,%.1f %.1f,%.1f"`,
			left-point, middle, left, top, right, top, right+point, middle, right, bottom, left, bottom)
	}
	return fmt.Sprintf(`<g><title>%s</title>%s fill="%s" stroke="%s" stroke-width="1.4"/><text x="%.1f" y="%.1f" text-anchor="middle" fill="%s">%s</text></g>`+"\n",
		html.EscapeString(n.tooltip()), shape, c.fill, c.border, x, middle+4.5, c.text, html.EscapeString(n.Name))
}

const legendHeight = 40

// legend explains the lines, and the colours that occur.
type legend struct {
	entries []legendEntry
	width   float64
}

type legendEntry struct {
	text  string
	state State // "": a line
	kind  Kind
}

func (e legendEntry) width() float64 { return float64(len(e.text))*6.2 + 30 + 18 }

func (g Graph) legend() legend {
	entries := []legendEntry{{text: "hangs on its output", kind: Output}, {text: "comes after", kind: After},
		{text: "comes after, if wanted", kind: Yields}}
	if states := g.states(); len(states) > 1 || len(states) == 1 && states[0] != Never {
		for _, s := range states {
			entries = append(entries, legendEntry{text: string(s), state: s})
		}
	}
	l := legend{entries: entries}
	for _, e := range entries {
		l.width += e.width()
	}
	return l
}

func (l legend) write(b *strings.Builder, x, y float64) {
	for _, e := range l.entries {
		if e.state == "" {
			b.WriteString(line(fmt.Sprintf("M%.1f,%.1f H%.1f", x, y+12, x+24), e.kind))
		} else {
			c := e.state.colours()
			fmt.Fprintf(b, `<rect x="%.1f" y="%.1f" width="20" height="12" rx="3" fill="%s" stroke="%s"/>`+"\n", x, y+6, c.fill,
				c.border)
		}
		fmt.Fprintf(b, `<text x="%.1f" y="%.1f" font-size="11" fill="#374151">%s</text>`+"\n", x+30, y+16, e.text)
		x += e.width()
	}
}
