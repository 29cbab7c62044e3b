package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/term"
)

// errNotConfirmed means that a person was asked and did not agree.
var errNotConfirmed = errors.New("not confirmed: nothing was done")

// confirm asks a person a question and reads the answer from stdin.
// Anything but the wanted answer, also none, is errNotConfirmed. When ctx ends the
// answer is not waited for any more.
func (c *console) confirm(ctx context.Context, question, want string) error {
	fmt.Fprint(questions(c), question)
	if c.stdin == nil {
		return errNotConfirmed
	}
	answer := make(chan error, 1)
	go func() { answer <- readAnswer(c, want) }()
	select {
	case err := <-answer:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// questions is where a question is seen: stderr, unless that goes to a file and stdout to a terminal.
func questions(c *console) io.Writer {
	if _, isFile := c.stderr.(*os.File); isFile && !isTerminal(c.stderr) && isTerminal(c.stdout) {
		return c.stdout
	}
	return c.stderr
}

func readAnswer(c *console, want string) error {
	line, err := bufio.NewReader(c.stdin).ReadString('\n')
	if strings.TrimSpace(line) == want {
		return nil
	}
	if err != nil && line == "" {
		return fmt.Errorf("%w: there was no answer; --yes answers beforehand", errNotConfirmed)
	}
	return errNotConfirmed
}

// canPrompt tells whether the operator can be asked. A file that is no terminal certainly gives no answer.
func (c *console) canPrompt() bool {
	_, isFile := c.stdin.(*os.File)
	return c.stdin != nil && (!isFile || isTerminal(c.stdin))
}

// isTerminal tells whether a stream is certainly a terminal.
func isTerminal(stream any) bool {
	f, isFile := stream.(*os.File)
	return isFile && term.IsTerminal(int(f.Fd()))
}
