package serve

import (
	"os"
	"os/exec"
	"testing"
	"time"
)

// A process is known again by its start; another start, and a process that has ended, are not it.
func TestAProcessIsKnownAgain(t *testing.T) {
	cmd := exec.Command("sleep", "60")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	pid := cmd.Process.Pid
	began, alive := processStarted(pid)
	if !alive || time.Since(began).Abs() > time.Minute {
		t.Fatalf("process %d: began %v, alive %t", pid, began, alive)
	}
	if !isProcess(pid, began) || isProcess(pid, began.Add(-time.Hour)) {
		t.Error("it is not told from one of an hour ago")
	}
	if !processBefore(pid, time.Now()) || processBefore(pid, began.Add(-time.Hour)) {
		t.Error("it did not begin before now, or began an hour ago")
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	// Until it is waited for, the system still has an entry of it.
	for deadline := time.Now().Add(10 * time.Second); isProcess(pid, began); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("a process that was killed is alive")
		}
	}
	_ = cmd.Wait()
	if _, alive := processStarted(-1); alive {
		t.Error("there is a process -1")
	}
	if _, alive := processStarted(os.Getpid()); !alive {
		t.Error("this process is not alive")
	}
}
