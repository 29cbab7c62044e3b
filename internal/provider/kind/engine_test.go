package kind

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/slipway-k8s/slipway/platform"
)

// What engines say of themselves is read as kind reads it, from the one that kind would take.
func TestEngineIsRead(t *testing.T) {
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	root := t.TempDir()
	docker := func(more string) string {
		return `{"Name":"` + host + `","ServerVersion":"28.0.1","DockerRootDir":"` + root +
			`","CgroupDriver":"systemd","CgroupVersion":"2",` +
			`"MemoryLimit":true,"PidsLimit":true,"CPUShares":true,"MemTotal":8000000000,"SecurityOptions":["name=seccomp,profile=builtin"]` + more + `}`
	}
	const podman = `{"host":{"cgroupVersion":"v2","cgroupControllers":["cpu","memory"],"memTotal":4000000000,"security":{"rootless":true}},` +
		`"store":{"graphRoot":"/x","graphRootAllocated":100,"graphRootUsed":40},"version":{"version":"5.4.0"}}`
	for name, tc := range map[string]struct {
		programs map[string][2]string // what they say to -v, and to info
		want     platform.Engine
		free     bool // some of the disk of this machine
		err      string
	}{
		"docker": {programs: map[string][2]string{"docker": {"Docker version 28.0.1, build 1", docker("")},
			"podman": {"podman version 5.4.0", podman}},
			want: platform.Engine{Name: "docker", Version: "28.0.1", CgroupV2: true, CanLimit: true, MemoryBytes: 8000000000,
				DataRoot: root}, free: true},
		"docker elsewhere": {programs: map[string][2]string{"docker": {"Docker version 28.0.1, build 1",
			strings.Replace(docker(""), host, "elsewhere", 1)}},
			want: platform.Engine{Name: "docker", Version: "28.0.1", CgroupV2: true, CanLimit: true, MemoryBytes: 8000000000,
				DataRoot: root}},
		"docker rootless without a driver": {programs: map[string][2]string{"docker": {"Docker version 28.0.1, build 1",
			strings.NewReplacer(`"systemd"`, `"none"`, `builtin"`, `builtin","name=rootless"`,
				host, "elsewhere").Replace(docker(""))}},
			want: platform.Engine{Name: "docker", Version: "28.0.1", CgroupV2: true, Rootless: true, MemoryBytes: 8000000000,
				DataRoot: root}},
		"podman under docker's name": {programs: map[string][2]string{"docker": {"podman version 5.4.0", "{}"},
			"podman": {"podman version 5.4.0", podman}},
			want: platform.Engine{Name: "podman", Version: "5.4.0", CgroupV2: true, Rootless: true, MemoryBytes: 4000000000,
				DataRoot: "/x", FreeBytes: 60}},
		"nerdctl": {programs: map[string][2]string{"nerdctl": {"nerdctl version 2.0.0",
			strings.Replace(docker(""), root, "", 1)}},
			want: platform.Engine{Name: "nerdctl", Version: "28.0.1", CgroupV2: true, CanLimit: true, MemoryBytes: 8000000000}},
		"docker without its server": {programs: map[string][2]string{"docker": {"Docker version 28.0.1, build 1",
			`{"ServerErrors":["Cannot connect to the Docker daemon"]}`}}, err: "docker info: Cannot connect to the Docker daemon"},
		"docker without its server, beside podman": {programs: map[string][2]string{
			"docker": {"Docker version 28.0.1, build 1", `{"ServerErrors":["no"]}`}, "podman": {"podman version 5.4.0", podman}},
			want: platform.Engine{Name: "podman", Version: "5.4.0", CgroupV2: true, Rootless: true, MemoryBytes: 4000000000,
				DataRoot: "/x", FreeBytes: 60}},
		"none of two answers": {programs: map[string][2]string{"docker": {"Docker version 28.0.1, build 1",
			`{"ServerErrors":["no"]}`}, "podman": {"podman version 5.4.0", "nothing"}}, err: "MANAGEMENT=local"},
		"none": {err: "neither Docker"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for program, says := range tc.programs {
				script := "#!/bin/sh\ncase \"$1\" in\n-v) echo '" + says[0] + "' ;;\ninfo) echo '" + says[1] + "' ;;\nesac\n"
				if err := os.WriteFile(filepath.Join(dir, program), []byte(script), 0o700); err != nil {
					t.Fatal(err)
				}
			}
			t.Setenv("PATH", dir)
			got, err := (&Provider{kind: dockerKind{engines: &chooser{}}}).Engine(context.Background())
			if tc.err != "" {
				if err == nil || !strings.Contains(err.Error(), tc.err) {
					t.Errorf("%v, want %q", err, tc.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if tc.free != (got.FreeBytes > 1000) {
				t.Errorf("%d bytes are free", got.FreeBytes)
			}
			if tc.free {
				got.FreeBytes, got.InotifyUsed, got.InotifyLimit = 0, 0, 0
			}
			if got != tc.want {
				t.Errorf("%+v, want %+v", got, tc.want)
			}
		})
	}
}
