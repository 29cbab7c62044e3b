package steps

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// answerWithin bounds the questions to Hetzner of somebody who only looks, all of one look together: no deadline of a step
// ends them where connections are accepted and nothing is said.
const answerWithin = 10 * time.Second

// Promptly asks Hetzner for something that a person waits for. Its error tells a silence from a refusal.
func Promptly[T any](ctx context.Context, ask func(context.Context) (T, error)) (T, error) {
	silence := fmt.Errorf("Hetzner has not answered within %s; try again once its API does", answerWithin)
	ctx, cancel := context.WithTimeoutCause(ctx, answerWithin, silence)
	defer cancel()
	answer, err := ask(ctx)
	if err != nil && errors.Is(context.Cause(ctx), silence) {
		err = fmt.Errorf("%w: %w", silence, err)
	}
	return answer, err
}
