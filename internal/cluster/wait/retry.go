package wait

import (
	"context"
	"fmt"
	"time"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/client/kube"
)

const (
	// RetryFor is how long a download that fails is tried again: a line that breaks is back within a minute, or not soon.
	RetryFor = time.Minute
	// retryGap is the pause between two tries.
	retryGap = 2 * time.Second
)

// Retry does again, for a while, what failed for a reason of the network that may pass. It says why.
func Retry(ctx context.Context, say flow.Say, what string, do func() error) error {
	var first time.Time
	for {
		err := do()
		switch {
		case err == nil || ctx.Err() != nil || !kube.Transient(err):
			return err
		case first.IsZero():
			first = time.Now()
		case time.Since(first) > RetryFor:
			return fmt.Errorf("%w (tried again for %s)", err, config.Duration(RetryFor))
		}
		say("trying %s again: %v", what, err)
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s: %w, after %w", what, context.Cause(ctx), err)
		case <-time.After(retryGap):
		}
	}
}
