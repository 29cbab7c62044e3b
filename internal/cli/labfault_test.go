package cli

import (
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/slipway-k8s/slipway/internal/provider/lab/labtest"
)

// labCommand runs a command on the fake lab's folder.
func inLab(t *testing.T, f *labtest.FakeLab, args ...string) ran {
	t.Helper()
	return execute(t, t.Context(), t.TempDir(), "", append(args, "--state-dir", filepath.Dir(f.Dir))...)
}

func TestLabFault(t *testing.T) {
	f := labtest.NewFakeLab(t)
	r := inLab(t, f, "lab", "fault", "add", "error", "path=/servers/*", "times=2", "for=30s")
	if r.code != ExitDone || !strings.Contains(r.stdout, "fault 1: error for=30s path=/servers/* times=2") {
		t.Errorf("add: %+v", r)
	}
	if want := `{"for":"30s","kind":"error","path":"/servers/*","times":2}`; !slices.Contains(f.Asked,
		"POST /v1/faults") || string(f.Faults[1]) != want {
		t.Errorf("the lab was told %s of %v", f.Faults[1], f.Asked)
	}
	if r := inLab(t, f, "lab", "fault", "list"); r.code != ExitDone ||
		!strings.Contains(r.stdout, "error for=30s path=/servers/* times=2  3 ") {
		t.Errorf("list: %+v", r)
	}
	r = inLab(t, f, "lab", "fault", "list", "--output", "json")
	var list struct{ Faults []struct{ ID int } }
	if err := json.Unmarshal([]byte(r.stdout), &list); err != nil || len(list.Faults) != 1 || list.Faults[0].ID != 1 {
		t.Errorf("list in JSON: %+v, %v", r, err)
	}
	if r := inLab(t, f, "lab", "fault", "remove", "1"); r.code != ExitDone || len(f.Faults) != 0 {
		t.Errorf("remove: %+v", r)
	}
	if r := inLab(t, f, "lab", "fault", "list"); r.code != ExitDone ||
		!strings.Contains(r.stdout, "no fault is in force") {
		t.Errorf("list of none: %+v", r)
	}
	for args, says := range map[string]string{
		"add":                 "lab fault add needs KIND",
		"add gremlins":        "there is no fault",
		"add error status=no": "status=no",
		"remove":              "lab fault remove needs ID",
		"remove one":          `"one" is not a fault's number`,
		"remove 7":            "there is no such fault",
		"rm 7":                `lab fault cannot "rm"`,
		"":                    "lab fault takes one of: add, list, remove",
	} {
		if r := inLab(t, f, append([]string{"lab", "fault"}, strings.Fields(args)...)...); r.code != ExitUsage ||
			!strings.Contains(r.stderr, says) {
			t.Errorf("lab fault %s: %+v, want %s", args, r, says)
		}
	}
	f.Server.Close()
	if r := inLab(t, f, "lab", "fault", "list"); r.code != ExitFailed || !strings.Contains(r.stderr, "no lab is up") {
		t.Errorf("of a lab that is down: %+v", r)
	}
}
