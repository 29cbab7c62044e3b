package repository

import (
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"testing"
)

func TestVersionComesFromTheProgram(t *testing.T) {
	const module = "example.com/provider"
	for name, c := range map[string]struct {
		info    debug.BuildInfo
		version string
		problem string
	}{
		"tool":       {info: debug.BuildInfo{Main: debug.Module{Path: module, Version: "v1.2.3"}}, version: "v1.2.3"},
		"dependency": {info: debug.BuildInfo{Deps: []*debug.Module{{Path: module, Version: "v1.2.3"}}}, version: "v1.2.3"},
		"other":      {info: debug.BuildInfo{Main: debug.Module{Path: "example.com/other"}}, problem: "example.com/other"},
		"source":     {info: debug.BuildInfo{Main: debug.Module{Path: module, Version: "(devel)"}}, problem: "not a release"},
	} {
		version, err := moduleVersion(&c.info, module)
		if version != c.version || (err != nil) != (c.problem != "") ||
			err != nil && !strings.Contains(err.Error(), c.problem) {
			t.Errorf("%s: %q, %v", name, version, err)
		}
	}
	notGo := filepath.Join(t.TempDir(), "program")
	if err := os.WriteFile(notGo, []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := programVersion(notGo, module); err == nil || !strings.Contains(err.Error(), "go install tool") {
		t.Errorf("a file that is no Go program: error %v", err)
	}
}

func TestModulesAreKeptBesideThePrograms(t *testing.T) {
	cache, bin := t.TempDir(), t.TempDir()
	t.Setenv("GOMODCACHE", cache)
	m := Module{Path: "example.com/provider", Version: "v1.2.3", Dir: filepath.Join(bin, keptFolder, "example.com",
		"provider@v1.2.3")}

	if err := keepModule(t.Context(), m); err == nil ||
		!strings.Contains(err.Error(), "go mod download example.com/provider@v1.2.3") {
		t.Errorf("a module that is not in the cache: error %v", err)
	}
	for name, content := range map[string]string{
		"metadata.yaml":                     "m",
		"main.go":                           "package main",
		"config/default/kustomization.yaml": "k",
		"config/default/README.md":          "r",
	} {
		if err := writeFile(filepath.Join(cache, "example.com", "provider@v1.2.3", name), []byte(content)); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 { // the second finds the copy in its place
		if err := keepModule(t.Context(), m); err != nil {
			t.Fatal(err)
		}
	}
	got := tree(t, bin)
	kept := "modules/example.com/provider@v1.2.3/"
	if len(got) != 2 || got[kept+"metadata.yaml"] != "m" || got[kept+"config/default/kustomization.yaml"] != "k" {
		t.Errorf("kept %v, want the manifests and nothing else", got)
	}
}
