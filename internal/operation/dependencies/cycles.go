package dependencies

import (
	"maps"
	"slices"
)

// cycles has the shortest cycle of each set of objects that depend on each other, in the order of their names. It
// begins with the first name.
func cycles(all map[Key]*Object) (found [][]Key) {
	seen := map[Key]bool{} // in a set whose cycle was found
	for _, key := range slices.SortedFunc(maps.Keys(all), compareKeys) {
		if seen[key] {
			continue
		}
		cycle := pathBack(key, all)
		if cycle == nil {
			continue
		}
		found = append(found, cycle)
		forward, back := reachable(key, dependenciesOf(all)), reachable(key, dependents(all))
		for k := range forward {
			seen[k] = seen[k] || back[k]
		}
	}
	return found
}

func dependenciesOf(all map[Key]*Object) map[Key][]Key {
	edges := map[Key][]Key{}
	for key, o := range all {
		edges[key] = o.DependsOn
	}
	return edges
}

func dependents(all map[Key]*Object) map[Key][]Key {
	edges := map[Key][]Key{}
	for key, o := range all {
		for _, on := range o.DependsOn {
			edges[on] = append(edges[on], key)
		}
	}
	return edges
}

// reachable are the objects that edges lead to, the first included.
func reachable(from Key, edges map[Key][]Key) map[Key]bool {
	found, next := map[Key]bool{from: true}, []Key{from}
	for len(next) > 0 {
		key := next[0]
		next = next[1:]
		for _, to := range edges[key] {
			if !found[to] {
				found[to], next = true, append(next, to)
			}
		}
	}
	return found
}

// pathBack is the shortest way from an object over its dependencies back to it, without it at the end; nil: there is
// none.
func pathBack(start Key, all map[Key]*Object) []Key {
	before, next := map[Key]Key{}, []Key{start}
	for len(next) > 0 {
		key := next[0]
		next = next[1:]
		if all[key] == nil {
			continue
		}
		for _, on := range all[key].DependsOn {
			if on == start {
				path := []Key{key}
				for key != start {
					key = before[key]
					path = append(path, key)
				}
				slices.Reverse(path)
				return path
			}
			if _, known := before[on]; !known {
				before[on], next = key, append(next, on)
			}
		}
	}
	return nil
}
