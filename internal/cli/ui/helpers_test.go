package ui

import (
	"flag"

	"github.com/slipway-k8s/slipway/internal/base/redact"
)

var update = flag.Bool("update", false, "write the golden files again")

func hiding() *redact.Redactor {
	var r redact.Redactor
	r.Learn(secret, "short", "")
	return &r
}
