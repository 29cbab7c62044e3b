package main

import (
	"encoding/json"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestParseFault(t *testing.T) {
	got, err := parseFault([]string{"apiserver-restart", "cluster=k8s", "for=2s", "seed=9007199254740993", "probability=0.5", "file=a/kubeconfig"}, "/srv")
	if err != nil {
		t.Fatal(err)
	}
	data, err := json.Marshal(got)
	want := `{"cluster":"k8s","file":"/srv/a/kubeconfig","for":"2s","kind":"apiserver-restart","probability":0.5,"seed":9007199254740993}`
	if err != nil || string(data) != want {
		t.Errorf("%s, %v", data, err)
	}
	for words, says := range map[string]string{
		"error status=many":          "status=many",
		"error status=-1":            "status=-1",
		"error delay=5":              "delay=5",
		"error pth=/servers":         "did you mean path?",
		"error /servers":             `"/servers" is not key=value`,
		"error path=":                "path has no value",
		"error path=/a path=/b":      "path is given twice",
		"error probability=certain":  "probability=certain",
		"error nothing-like-it=none": "there are actor, cluster",
	} {
		_, err := parseFault(strings.Fields(words), "/srv")
		if _, usage := errorAs[*usageError](err); !usage || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v, want %s", words, err, says)
		}
	}
}

// labCommand runs a command on the fake lab's folder.
func (f *fakeLab) command(t *testing.T, args ...string) ran {
	t.Helper()
	return execute(t, t.Context(), t.TempDir(), "", append(args, "--state-dir", filepath.Dir(f.dir))...)
}

func TestLabFault(t *testing.T) {
	f := newFakeLab(t)
	r := f.command(t, "lab", "fault", "add", "error", "path=/servers/*", "times=2", "for=30s")
	if r.code != exitDone || !strings.Contains(r.stdout, "fault 1: error for=30s path=/servers/* times=2") {
		t.Errorf("add: %+v", r)
	}
	if want := `{"for":"30s","kind":"error","path":"/servers/*","times":2}`; !slices.Contains(f.asked, "POST /v1/faults") || string(f.faults[1]) != want {
		t.Errorf("the lab was told %s of %v", f.faults[1], f.asked)
	}
	if r := f.command(t, "lab", "fault", "list"); r.code != exitDone || !strings.Contains(r.stdout, "error for=30s path=/servers/* times=2  3 ") {
		t.Errorf("list: %+v", r)
	}
	r = f.command(t, "lab", "fault", "list", "--output", "json")
	var list struct{ Faults []struct{ ID int } }
	if err := json.Unmarshal([]byte(r.stdout), &list); err != nil || len(list.Faults) != 1 || list.Faults[0].ID != 1 {
		t.Errorf("list in JSON: %+v, %v", r, err)
	}
	if r := f.command(t, "lab", "fault", "remove", "1"); r.code != exitDone || len(f.faults) != 0 {
		t.Errorf("remove: %+v", r)
	}
	if r := f.command(t, "lab", "fault", "list"); r.code != exitDone || !strings.Contains(r.stdout, "no fault is in force") {
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
		if r := f.command(t, append([]string{"lab", "fault"}, strings.Fields(args)...)...); r.code != exitUsage || !strings.Contains(r.stderr, says) {
			t.Errorf("lab fault %s: %+v, want %s", args, r, says)
		}
	}
	f.server.Close()
	if r := f.command(t, "lab", "fault", "list"); r.code != exitFailed || !strings.Contains(r.stderr, "no lab is up") {
		t.Errorf("of a lab that is down: %+v", r)
	}
}

// serveFaults plays the lab's part.
func (f *fakeLab) serveFaults(r *http.Request, id int) (status int, answer any) {
	force := func(id int) map[string]any {
		fields := map[string]any{}
		_ = json.Unmarshal(f.faults[id], &fields) // it was read before
		fields["id"], fields["hits"], fields["since"] = id, 3, time.Now()
		return fields
	}
	switch r.Method {
	case http.MethodPost:
		var told map[string]any
		if err := json.NewDecoder(r.Body).Decode(&told); err != nil || told["kind"] == "gremlins" {
			return http.StatusBadRequest, map[string]string{"error": "there is no fault gremlins"}
		}
		data, err := json.Marshal(told)
		if err != nil {
			return http.StatusBadRequest, map[string]string{"error": err.Error()}
		}
		id := len(f.faults) + 1
		f.faults[id] = data
		return http.StatusOK, force(id)
	case http.MethodDelete:
		if f.faults[id] == nil {
			return http.StatusNotFound, map[string]string{"error": "there is no such fault in force"}
		}
		delete(f.faults, id)
		return http.StatusOK, struct{}{}
	default:
		list := []any{}
		for id := range f.faults {
			list = append(list, force(id))
		}
		return http.StatusOK, map[string]any{"faults": list}
	}
}
