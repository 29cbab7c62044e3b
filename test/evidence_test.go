package test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// failureLines matches the lines of a server's log that explain why other programs fail: a member of etcd that ended or
// was removed, and an API server that accepts no token because it cannot read its etcd.
var failureLines = regexp.MustCompile(`"level":"(error|fatal|panic)"|removed member|Unable to authenticate|etcdserver: `)

// serverLogs are the last such lines of etcd and of the kube-apiserver of each server of the labs of a state folder, and
// of the drills beside it. A failed test prints them, as its folder is removed with it.
func serverLogs(state string) string {
	const last, columns = 4, 400
	var b strings.Builder
	for _, program := range []string{"etcd", "kube-apiserver"} {
		logs, err := filepath.Glob(state + "*/lab/servers/*/log/" + program + ".log")
		if err != nil {
			return err.Error()
		}
		for _, log := range logs {
			data, err := os.ReadFile(log)
			if err != nil {
				fmt.Fprintln(&b, err)
				continue
			}
			all := strings.Split(strings.TrimSpace(string(data)), "\n")
			lines := slices.DeleteFunc(slices.Clone(all), func(line string) bool { return !failureLines.MatchString(line) })
			lines = append(lines, all[len(all)-1]) // when it wrote last: a process that hangs is silent
			for _, line := range lines[max(len(lines)-last, 0):] {
				fmt.Fprintf(&b, "%s: %.*s\n", strings.TrimPrefix(log, filepath.Dir(state)), columns, line)
			}
		}
	}
	return b.String()
}
