package architecture

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// TestTheLibraryIsUsable builds and tests the module test/library, which imports this one as any other module
// would. Its tests open no connection: they run in no lab, and show no whole bootstrap.
func TestTheLibraryIsUsable(t *testing.T) {
	packages(t) // go test runs this again when a folder of the module has changed
	cmd := exec.Command("go", "test", "-count=1", "./...")
	cmd.Dir = "../library"
	cmd.Env = append(os.Environ(), "GOFLAGS=-mod=readonly -tags=kustomize_disable_go_plugin_support",
		"GOWORK=off")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go test in test/library: %v; where go.mod or go.sum is out of date, run go mod tidy there\n%s", err, out)
	}
}

// TestTheLibraryPageIsTrue holds the code in docs/library.md against test/library.
func TestTheLibraryPageIsTrue(t *testing.T) {
	text, err := os.ReadFile("../../docs/library.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{"main.go", "argocd/argocd.go"} {
		program, err := os.ReadFile("../library/" + file)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(text), "```go\n"+string(program)+"```\n") {
			t.Errorf("docs/library.md does not have test/library/%s as it is: copy it", file)
		}
	}
}
