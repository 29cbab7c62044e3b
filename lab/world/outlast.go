package world

import (
	"context"
	"errors"
	"time"
)

// dying is how long a lab that was killed may need until the kernel has ended all of
// it and freed its lock and its addresses.
const dying = 3 * time.Second

// outlast tries again as long as the reason for a failure may be a lab that is dying.
func outlast(ctx context.Context, reason error, try func() error) error {
	ctx, cancel := context.WithTimeout(ctx, dying)
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
