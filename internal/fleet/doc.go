// Package fleet reads fleet.yaml: many clusters as entries over shared defaults.
package fleet
