package wait

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// answerWithin bounds the questions to Hetzner of a command that only reads, all of one look together: no deadline of a
// step ends them where connections are accepted and nothing is said.
const answerWithin = 10 * time.Second

// Promptly asks Hetzner for something that a person waits for. Its error tells a silence from a refusal.
func Promptly[T any](ctx context.Context, ask func(context.Context) (T, error)) (T, error) {
	return PromptlyFrom(ctx, "Hetzner has not answered", ask)
}

// PromptlyFrom bounds a question; silent says who did not answer it.
func PromptlyFrom[T any](ctx context.Context, silent string, ask func(context.Context) (T, error)) (T, error) {
	silence := fmt.Errorf("%s within %s; try again once its API does", silent, answerWithin)
	ctx, cancel := context.WithTimeoutCause(ctx, answerWithin, silence)
	defer cancel()
	answer, err := ask(ctx)
	if err != nil && errors.Is(context.Cause(ctx), silence) {
		err = fmt.Errorf("%w: %w", silence, err)
	}
	return answer, err
}
