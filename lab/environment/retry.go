package environment

import (
	"context"
	"errors"
	"time"
)

// endingTime is how long the kernel may need to end the processes of a killed lab and to free its lock and addresses.
const endingTime = 3 * time.Second

// retryWhileEnding retries while a failure may be caused by a lab that is ending.
func retryWhileEnding(ctx context.Context, reason error, try func() error) error {
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
