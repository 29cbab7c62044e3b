package config

import (
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/slipway-k8s/slipway/internal/client/objectstore"
)

// How State begins.
const (
	StateFileScheme    = "file://"
	StateSecretsScheme = "k8s://"
)

// minLease is the shortest lease of a state: it is renewed eight times in it, each time by a request that may be made
// again.
const minLease = 10 * time.Second

func (v *Findings) state(c Config) {
	v.recipients("stateRecipients", c.StateRecipients)
	if c.StateLease.D() < minLease {
		v.add("stateLease", c.StateLease, fmt.Sprintf("is shorter than %s", minLease),
			"a run that cannot renew its lease in "+
				"three quarters of it stops; 2m outlasts a store that is away for a minute")
	}
	folder, isFile := strings.CutPrefix(c.State, StateFileScheme)
	namespace, isSecrets := strings.CutPrefix(c.State, StateSecretsScheme)
	switch {
	case c.State == "":
	case isFile && !filepath.IsAbs(folder):
		v.add("state", c.State, "names no absolute folder", "write file:///folder, with three slashes")
	case isFile:
	case isSecrets && !dnsLabel.MatchString(namespace):
		v.add("state", c.State, "names no namespace", "write k8s://namespace")
	case isSecrets:
	case !objectstore.IsS3(c.State):
		v.add("state", c.State, "is no store of states", "write file:///folder, s3://bucket/prefix or k8s://namespace")
	default:
		v.bucket("state", c.State, "stateS3Endpoint", c.StateS3Endpoint)
	}
}
