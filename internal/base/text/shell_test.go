package text

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

func TestAShellReadsTheSameWords(t *testing.T) {
	words := []string{"bootstrap", "", "a b", "it's", `"`, "$HOME", "`id`", `\`, "~/x", "*", "#", "!", "a=b c", "K=v",
		"/tmp/x-1.2", "{a,b}", "x;y", "é…", "tab\tnew\nline", "%s", "[a]"}
	out, err := exec.Command("/bin/sh", "-c", `for w in "$@"; do printf '%s\0' "$w"; done`, "sh").Output()
	if err != nil || len(out) > 0 {
		t.Fatalf("the shell of this test is unusable: %q, %v", out, err)
	}
	out, err = exec.Command("/bin/sh", "-c", "for w in "+ShellLine(words...)+`; do printf '%s\0' "$w"; done`).Output()
	if err != nil {
		t.Fatal(err)
	}
	if read := strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00"); !slices.Equal(read, words) {
		t.Errorf("of %s it reads %q", ShellLine(words...), read)
	}
}

func TestPlainWordsStayAsTheyAre(t *testing.T) {
	if line := ShellLine("bootstrap", "--state-dir", "/a/b-c.d", "CLUSTER_NAME=k8s",
		"s3://b/p"); line != "bootstrap --state-dir /a/b-c.d CLUSTER_NAME=k8s s3://b/p" {
		t.Error(line)
	}
}
