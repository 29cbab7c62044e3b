package config

import (
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/slipway-k8s/slipway/internal/base/keys"
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
	if _, err := keys.ParseRecipients(c.StateRecipients); err != nil {
		// Not the value: it may be a secret key in the wrong place.
		v.add("stateRecipients", "…", "cannot be read", err.Error())
	}
	if c.StateLease.D() < minLease {
		v.add("stateLease", c.StateLease, fmt.Sprintf("is shorter than %s", minLease),
			"a run that cannot renew its lease in "+
				"three quarters of it stops; 2m outlasts a store that is away for a minute")
	}
	const choose = "write file:///folder, s3://bucket/prefix or k8s://namespace"
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
		v.add("state", c.State, "is no store of states", choose)
	case c.StateS3Endpoint == "":
		v.add("stateS3Endpoint", "", "is empty while state is in an S3 store",
			"Hetzner's is https://<location>.your-objectstorage.com")
	default:
		if _, err := objectstore.OpenBucket(c.State, objectstore.S3Options{Endpoint: c.StateS3Endpoint}); err != nil {
			v.add("state", c.State, "cannot be used", err.Error())
		}
	}
}
