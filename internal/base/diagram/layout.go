package diagram

import (
	"cmp"
	"slices"
)

// Measures of the picture, in pixels.
const (
	boxHeight   = 34
	layerHeight = 78 // from one layer's top to the next
	charWidth   = 7.6
	boxPadding  = 24 // left and right of the text together
	gap         = 26 // between two boxes
	laneWidth   = 10 // that a line takes which passes a layer
	margin      = 24
	sweeps      = 24 // more change nothing in graphs of this size
)

// spot is a place in the layout: a node's box, or where a line passes a layer.
type spot struct {
	node     int // in Graph.Nodes; -1: a line passes
	layer    int
	order    int     // in its layer
	x        float64 // of its middle
	width    float64
	up, down []*spot
}

// layout has a row of spots for each layer, and the spots that each edge leads through, its ends included.
type layout struct {
	layers [][]*spot
	routes [][]*spot // by edge
}

// arrange lays a graph out in layers: every edge leads down, lines cross little, and a node is in the middle of
// what it hangs together with.
func (g Graph) arrange() layout {
	l := g.place()
	best, crossings := l.orders(), l.crossings()
	for i := range sweeps {
		l.sweep(i%2 == 0)
		if now := l.crossings(); now < crossings {
			best, crossings = l.orders(), now
		}
	}
	l.restore(best)
	l.centre()
	return l
}

// place gives every node its layer and every long edge its lanes.
func (g Graph) place() layout {
	layer, last := g.depths()
	l := layout{layers: make([][]*spot, last+1)}
	add := func(s *spot) *spot {
		s.order = len(l.layers[s.layer])
		l.layers[s.layer] = append(l.layers[s.layer], s)
		return s
	}
	spots := map[string]*spot{}
	for i, n := range g.Nodes {
		spots[n.Name] = add(&spot{node: i, layer: layer[n.Name], width: float64(len(n.Name))*charWidth + boxPadding})
	}
	for _, e := range g.Edges {
		route := []*spot{spots[e.From]}
		for depth := layer[e.From] + 1; depth < layer[e.To]; depth++ {
			route = append(route, add(&spot{node: -1, layer: depth, width: laneWidth}))
		}
		route = append(route, spots[e.To])
		for i := range route[1:] {
			route[i].down = append(route[i].down, route[i+1])
			route[i+1].up = append(route[i+1].up, route[i])
		}
		l.routes = append(l.routes, route)
	}
	return l
}

// depths are the layers of the nodes: each below all that lead to it, and those that nothing leads to right above what
// they lead to.
func (g Graph) depths() (layer map[string]int, last int) {
	layer = map[string]int{}
	hasUp := map[string]bool{}
	for _, n := range g.Nodes {
		for _, e := range g.Edges {
			if e.To == n.Name {
				layer[n.Name] = max(layer[n.Name], layer[e.From]+1)
				hasUp[n.Name] = true
			}
		}
		last = max(last, layer[n.Name])
	}
	for _, n := range g.Nodes {
		if hasUp[n.Name] {
			continue
		}
		nearest := last + 1
		for _, e := range g.Edges {
			if e.From == n.Name {
				nearest = min(nearest, layer[e.To])
			}
		}
		if nearest <= last {
			layer[n.Name] = nearest - 1
		}
	}
	return layer, last
}

// sweep orders the layers, one after another, by the middle of what their spots hang together with.
func (l layout) sweep(downwards bool) {
	for i := range l.layers {
		row := l.layers[i]
		if !downwards {
			row = l.layers[len(l.layers)-1-i]
		}
		middle := map[*spot]float64{}
		for _, s := range row {
			next := s.up
			if !downwards {
				next = s.down
			}
			middle[s] = float64(s.order)
			if len(next) > 0 {
				sum := 0
				for _, t := range next {
					sum += t.order
				}
				middle[s] = float64(sum) / float64(len(next))
			}
		}
		slices.SortStableFunc(row, func(a, b *spot) int { return cmp.Compare(middle[a], middle[b]) })
		for order, s := range row {
			s.order = order
		}
	}
}

func (l layout) crossings() int {
	n := 0
	for _, row := range l.layers {
		for i, a := range row {
			for _, b := range row[i+1:] {
				for _, p := range a.down {
					for _, q := range b.down {
						if p.order > q.order {
							n++
						}
					}
				}
			}
		}
	}
	return n
}

func (l layout) orders() [][]*spot {
	all := make([][]*spot, len(l.layers))
	for i, row := range l.layers {
		all[i] = slices.Clone(row)
	}
	return all
}

func (l layout) restore(orders [][]*spot) {
	for i, row := range orders {
		copy(l.layers[i], row)
		for order, s := range row {
			s.order = order
		}
	}
}

// centre gives every spot its place across, in its layer's order.
func (l layout) centre() {
	for _, row := range l.layers {
		spread(row, make([]float64, len(row)), nil)
	}
	for i := range sweeps {
		for j := range l.layers {
			row := l.layers[j]
			if i%2 == 1 {
				row = l.layers[len(l.layers)-1-j]
			}
			wanted, weights := make([]float64, len(row)), make([]float64, len(row))
			for k, s := range row {
				next := slices.Concat(s.up, s.down)
				wanted[k], weights[k] = s.x, 1
				if len(next) > 0 {
					wanted[k] = mean(next)
				}
				if s.node < 0 {
					weights[k] = 4 // long lines are straight before boxes are in the middle
				}
			}
			spread(row, wanted, weights)
		}
	}
	left := l.layers[0][0].x
	for _, row := range l.layers {
		left = min(left, row[0].x-row[0].width/2)
	}
	for _, row := range l.layers {
		for _, s := range row {
			s.x += margin - left
		}
	}
}

func mean(spots []*spot) float64 {
	sum := 0.0
	for _, s := range spots {
		sum += s.x
	}
	return sum / float64(len(spots))
}

// spread puts a row's spots as near to the wanted places as their order and the gaps between them allow, by the least
// squares: spots that want into each other form a block, which is placed at their weighted mean.
func spread(row []*spot, wanted, weights []float64) {
	type block struct {
		sum, weight float64
		members     int
	}
	offsets := make([]float64, len(row))
	var blocks []block
	for i := range row {
		if i > 0 {
			offsets[i] = offsets[i-1] + (row[i-1].width+row[i].width)/2 + gap
		}
		weight := 1.0
		if weights != nil {
			weight = weights[i]
		}
		b := block{(wanted[i] - offsets[i]) * weight, weight, 1}
		for len(blocks) > 0 {
			before := blocks[len(blocks)-1]
			if before.sum/before.weight <= b.sum/b.weight {
				break
			}
			b = block{before.sum + b.sum, before.weight + b.weight, before.members + b.members}
			blocks = blocks[:len(blocks)-1]
		}
		blocks = append(blocks, b)
	}
	i := 0
	for _, b := range blocks {
		for range b.members {
			row[i].x = b.sum/b.weight + offsets[i]
			i++
		}
	}
}
