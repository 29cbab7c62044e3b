package proc

import (
	"context"
	"errors"
	"time"
)

// endingTime is how long the kernel may need to end the processes of a killed daemon and to free its lock and
// addresses.
const endingTime = 3 * time.Second

// RetryWhileEnding retries, for at most three seconds, while a failure may be caused by a daemon that is ending.
func RetryWhileEnding(ctx context.Context, reason error, try func() error) error {
	ctx, cancel := context.WithTimeout(ctx, endingTime)
	defer cancel()
	ticker := time.NewTicker(50 * time.Millisecond)
	defer ticker.Stop()
	for {
		err := try()
		if !errors.Is(err, reason) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-ticker.C:
		}
	}
}
