package lab

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/client/images"
)

// Bounds on LAB_PROGRAMS=auto: a machine without registries, or with slow ones, loses no more than seconds before it
// builds from source.
const (
	// reachableWithin is how long the registries together may take to answer for one image each.
	reachableWithin = 3 * time.Second
	// attemptPatience is how long a registry may be silent while images are fetched.
	attemptPatience = 3 * time.Second
	// judgeAfter is when the rate is looked at first, and how often.
	judgeAfter = 8 * time.Second
	// slowest is the rate, in bytes a second, at which the images (about 200 MB) take as long as the build from source.
	slowest float64 = 512 << 10
)

// attempt is fetch for a set that can also be built: it gives up soon. What it fetched is continued by the next one.
func (s *imageSets) attempt(ctx context.Context, say flow.Say) (string, error) {
	if runtime.GOOS != "linux" {
		return "", errNotLinux
	}
	if s.store.Patience == 0 {
		s.store.Patience = attemptPatience
	}
	if err := s.reachable(ctx); err != nil {
		return "", err
	}
	s.slowest = slowest
	return s.fetch(ctx, say)
}

// watchRate ends a pull that is slower than the build from source.
func (s *imageSets) watchRate(ctx context.Context, progress *images.Progress, end context.CancelCauseFunc) {
	if s.slowest == 0 {
		return
	}
	began := time.Now()
	for tick := time.Tick(s.judgeAfter); ; {
		select {
		case <-ctx.Done():
			return
		case <-tick:
		}
		if rate := float64(progress.Fetched()) / time.Since(began).Seconds(); rate < s.slowest {
			end(fmt.Errorf("they arrive at %.0f kB/s, and the build from source is faster", rate/1000))
		}
	}
}

// reachable asks each registry for one image. All are asked at once.
func (s *imageSets) reachable(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, reachableWithin,
		fmt.Errorf("they did not answer within %s", reachableWithin))
	defer cancel()
	asked := map[string]bool{}
	var (
		asking sync.WaitGroup
		mu     sync.Mutex
		errs   []error
	)
	for _, p := range inSets() {
		host, _, _ := strings.Cut(p.image, "/")
		if asked[host] {
			continue
		}
		asked[host] = true
		asking.Go(func() {
			if err := s.store.Reachable(ctx, p.reference(s.config)); err != nil {
				mu.Lock()
				defer mu.Unlock()
				errs = append(errs, err)
			}
		})
	}
	asking.Wait()
	return errors.Join(errs...)
}
