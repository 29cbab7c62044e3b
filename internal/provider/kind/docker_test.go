package kind

import (
	"os"
	"path/filepath"
	"testing"
)

// simulatedDocker is a docker with the containers and images in $DOCKER: containers/NAME has the mounts of each, and
// images has what is there of images. "run" creates a container and then fails, as where a port is taken.
// $DOCKER/did has all that changes something. With $TAKEN a container of that name, and without a mark, appears
// after kind has looked for one.
const simulatedDocker = `#!/bin/sh
case "$1" in
-v) echo "Docker version 20.10.25, build b82b9f3" ;;
ps)
	for c in "$DOCKER"/containers/*; do
		[ -e "$c" ] || continue
		case "$*" in
		*Names*) basename "$c" ;;
		*) basename "$c" | sed s/-control-plane$// ;;
		esac
	done ;;
info) echo '{"Name":"elsewhere","ServerVersion":"20.10.25","DockerRootDir":"/d","CgroupDriver":"systemd","CgroupVersion":"2","MemoryLimit":true,"PidsLimit":true,"CPUShares":true,"MemTotal":8000000000}' ;;
network)
	[ -z "$TAKEN" ] || echo /lib/modules >"$DOCKER/containers/$TAKEN"
	echo kind ;;
inspect)
	for last; do :; done
	case "$*" in
	*type=container*)
		[ -e "$DOCKER/containers/$last" ] || { echo "Error: No such container: $last" >&2; exit 1; }
		echo '[{"Id":"0123456789abcdef01","Created":"2026-11-25T10:00:00.1Z","Mounts":[{"Type":"bind","Destination":"'"$(cat "$DOCKER/containers/$last")"'"}]}]' ;;
	*type=image*)
		grep "^$last	" "$DOCKER/images" | cut -f2 | grep . || { echo "Error: No such image: $last" >&2; exit 1; } ;;
	esac ;;
pull)
	echo "pull $2" >>"$DOCKER/did"
	echo "Error response from daemon: Get https://registry.invalid: no route to host" >&2
	exit 1 ;;
run)
	for arg; do
		[ "$previous" = --name ] && name=$arg
		case "$arg" in *:/etc/slipway/*) mark=${arg#*:}; mark=${mark%:ro} ;; esac
		previous=$arg
	done
	for image; do :; done
	echo "run $image" >>"$DOCKER/did"
	[ -e "$DOCKER/containers/$name" ] || echo "$mark" >"$DOCKER/containers/$name"
	echo 0123456789abcdef01
	printf 'docker: Error response from daemon: port is already allocated.\nSee '"'docker run --help'"'.\n' >&2
	exit 125 ;;
rm)
	for last; do :; done
	echo "rm $last" >>"$DOCKER/did"
	rm -f "$DOCKER/containers/$last" ;;
esac
`

// docker puts a simulated docker on the PATH, with containers by name and images, each with what inspect says of it.
func docker(t *testing.T, containers, images map[string]string) (did func() string) {
	t.Helper()
	bin, state := t.TempDir(), t.TempDir()
	write := func(path, text string) {
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	write(filepath.Join(bin, "docker"), simulatedDocker)
	if err := os.Mkdir(filepath.Join(state, "containers"), 0o700); err != nil {
		t.Fatal(err)
	}
	for name, mark := range containers {
		write(filepath.Join(state, "containers", name), mark+"\n")
	}
	lines := ""
	for name, says := range images {
		lines += name + "\t" + says + "\n"
	}
	write(filepath.Join(state, "images"), lines)
	t.Setenv("PATH", bin+string(os.PathListSeparator)+os.Getenv("PATH"))
	t.Setenv("DOCKER", state)
	return func() string {
		data, err := os.ReadFile(filepath.Join(state, "did"))
		if err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
		return string(data)
	}
}
