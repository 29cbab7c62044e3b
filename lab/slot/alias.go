package slot

import (
	"errors"
	"fmt"
	"syscall"
)

// explainAddress adds to a failure to listen what the operator can do on a system that, like macOS, has only 127.0.0.1
// on its loopback interface.
func (s Slot) explainAddress(err error) error {
	if !errors.Is(err, syscall.EADDRNOTAVAIL) {
		return err
	}
	return fmt.Errorf(
		"%w\nthe loopback interface of this system does not have the lab's addresses; this command adds them until the "+
			"next restart:\n  %s", err, s.aliasCommand())
}

// aliasCommand adds to lo0 the addresses that a lab with one management cluster and one cluster of at most a dozen
// servers uses.
func (s Slot) aliasCommand() string {
	return fmt.Sprintf("for a in %[1]d.64.{1..16} %[2]d.0.{1..3} %[2]d.1.{1,2} %[2]d.2.{1,2} %[2]d.4.{1..16}; do sudo "+
		"ifconfig lo0 alias 127.$a; done", s, s+1)
}
