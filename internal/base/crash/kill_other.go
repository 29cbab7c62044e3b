//go:build !unix

package crash

import "os"

// killProcess does not return.
func killProcess() {
	for {
		if self, err := os.FindProcess(os.Getpid()); err == nil {
			_ = self.Kill()
		}
	}
}
