package main

import (
	"bufio"
	"errors"
	"fmt"
	"strings"
)

// errNotConfirmed means that a person was asked and did not agree.
var errNotConfirmed = errors.New("not confirmed: nothing was done")

// confirm asks a person a question on stderr and reads the answer from stdin.
// Anything but the wanted answer, also none, is errNotConfirmed.
func (c *command) confirm(question, want string) error {
	fmt.Fprint(c.stderr, question)
	if c.stdin == nil {
		return errNotConfirmed
	}
	line, err := bufio.NewReader(c.stdin).ReadString('\n')
	if strings.TrimSpace(line) == want {
		return nil
	}
	if err != nil && line == "" {
		return fmt.Errorf("%w: nobody answered; --yes answers beforehand", errNotConfirmed)
	}
	return errNotConfirmed
}
