package remotestate

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"filippo.io/age"

	"github.com/slipway-k8s/slipway/internal/base/keys"
)

// Keys encrypt, decrypt and authenticate the state of one cluster.
type Keys struct {
	Recipients []age.Recipient // that can open the content besides
	Identities []age.Identity  // of the operator; none where only the key of the cluster is known
	Clusters   []keys.Cluster  // derived from the identities; the first writes, all read
}

// ReadKeys reads a file of secret keys, or the key of one cluster: keys.ParseClusters. Errors do not contain the text.
func ReadKeys(file []byte, of keys.Scope) (k Keys, err error) {
	if k.Clusters, err = keys.ParseClusters(file, of); err != nil {
		return k, err
	}
	if len(k.Clusters) == 1 && k.Clusters[0].Secret() == strings.TrimSpace(string(file)) {
		return k, nil // the key of the cluster itself
	}
	k.Identities, err = keys.ParseIdentities(file)
	return k, err
}

// With adds other keys after these.
func (k Keys) With(other Keys) Keys {
	return Keys{slices.Concat(k.Recipients, other.Recipients), slices.Concat(k.Identities, other.Identities),
		slices.Concat(k.Clusters, other.Clusters)}
}

// Check makes sure that the keys can write a state, and read what they have written.
func (k Keys) Check() error {
	recipients, err := k.recipients()
	if err != nil {
		return err
	}
	if _, err := age.Encrypt(io.Discard, recipients...); err != nil {
		return fmt.Errorf("encrypt the state: %w", err)
	}
	return nil
}

var errNoSecretKey = errors.New("no secret key is configured (STATE_IDENTITY_FILE, or STATE_IDENTITY in the environment)")

// recipients are those that a content is encrypted for: the named ones, the first identity and the first key of the
// cluster. age does not combine post-quantum recipients with others: then the key of the cluster, which is none, is
// left out.
func (k Keys) recipients() ([]age.Recipient, error) {
	if len(k.Clusters) == 0 {
		return nil, errNoSecretKey
	}
	all := slices.Clone(k.Recipients)
	var own age.Recipient
	if len(k.Identities) > 0 {
		switch i := k.Identities[0].(type) {
		case *age.X25519Identity:
			own = i.Recipient()
		case *age.HybridIdentity:
			own = i.Recipient()
		}
	}
	if own != nil {
		all = append(all, own)
	}
	if !slices.ContainsFunc(all, hybrid) {
		cluster, err := k.Clusters[0].Recipient()
		return append(all, cluster), err
	}
	if !hybrid(own) {
		return nil, errors.New("STATE_RECIPIENTS names post-quantum keys (age1pq1…), which age does not combine with others, " +
			"and the first secret key of STATE_IDENTITY_FILE is none: use post-quantum keys for both, or for neither")
	}
	return all, nil
}

func hybrid(r age.Recipient) bool {
	_, is := r.(*age.HybridRecipient)
	return is
}

// identities are those that open a content.
func (k Keys) identities() ([]age.Identity, error) {
	all := slices.Clone(k.Identities)
	for _, cluster := range k.Clusters {
		identity, err := cluster.Identity()
		if err != nil {
			return nil, err
		}
		all = append(all, identity)
	}
	if len(all) == 0 {
		return nil, errNoSecretKey
	}
	return all, nil
}

// sum authenticates with the first key.
func (k Keys) sum(message []byte) ([]byte, error) {
	all, err := k.authenticators()
	if err != nil {
		return nil, err
	}
	if len(all) == 0 {
		return nil, errNoSecretKey
	}
	return all[0].Sum(message), nil
}

// authentic reports whether one of the keys made the sum of a message.
func (k Keys) authentic(message, sum []byte) bool {
	all, err := k.authenticators()
	return err == nil && keys.Authentic(all, message, sum)
}

func (k Keys) authenticators() (all []keys.Authenticator, err error) {
	for _, cluster := range k.Clusters {
		a, err := cluster.Authenticator(keys.State)
		if err != nil {
			return nil, err
		}
		all = append(all, a)
	}
	return all, nil
}
