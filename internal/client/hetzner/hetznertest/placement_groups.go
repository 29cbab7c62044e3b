package hetznertest

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud/schema"
)

// SetPlacementGroups replaces the placement groups.
func (s *Server) SetPlacementGroups(groups ...schema.PlacementGroup) {
	s.between(func() { s.groups = groups })
}

// PlacementGroups are the placement groups at present.
func (s *Server) PlacementGroups() (groups []schema.PlacementGroup) {
	s.between(func() { groups = slices.Clone(s.groups) })
	return groups
}

// servePlacementGroups answers for /placement_groups. A name is taken once.
func (s *Server) servePlacementGroups(w http.ResponseWriter, r *http.Request, named func(string) bool,
	chosen func(map[string]string) bool) {
	words := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	if len(words) == 1 && r.Method == http.MethodGet {
		reply(w, http.StatusOK, map[string]any{"placement_groups": keep(s.groups,
			func(g schema.PlacementGroup) bool { return named(g.Name) && chosen(g.Labels) })})
		return
	}
	var body struct {
		Name   string            `json:"name"`
		Labels map[string]string `json:"labels"`
	}
	if r.Method != http.MethodDelete && !decode(w, r, &body) {
		return
	}
	if len(words) == 1 {
		if slices.ContainsFunc(s.groups, func(g schema.PlacementGroup) bool { return g.Name == body.Name }) {
			refuse(w, http.StatusConflict, "uniqueness_error", "name is already used")
			return
		}
		g := schema.PlacementGroup{ID: int64(len(s.groups) + 1), Name: body.Name, Labels: body.Labels, Type: "spread",
			Created: time.Now()}
		s.groups = append(s.groups, g)
		reply(w, http.StatusCreated, map[string]any{"placement_group": g})
		return
	}
	id, _ := strconv.ParseInt(words[1], 10, 64)
	at := slices.IndexFunc(s.groups, func(g schema.PlacementGroup) bool { return g.ID == id })
	switch {
	case at < 0:
		refuse(w, http.StatusNotFound, "not_found", r.URL.Path)
	case r.Method == http.MethodDelete:
		s.groups = slices.Delete(s.groups, at, at+1)
		w.WriteHeader(http.StatusNoContent)
	default:
		s.groups[at].Labels = body.Labels
		reply(w, http.StatusOK, map[string]any{"placement_group": s.groups[at]})
	}
}
