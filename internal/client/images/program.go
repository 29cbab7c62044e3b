package images

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
)

// goRunner is the program that the images of Kubernetes run their program with, to write its output into a file.
const goRunner = "go-runner"

// Program finds the program that an image runs: the one that its entry point names, behind go-runner where the image
// uses it. The path is that of a file on this machine. Images of Kubernetes and etcd name no program, because their
// Pods do: otherwise is its path in the image then.
func (i Image) Program(otherwise string) (file string, err error) {
	words := append(append([]string{}, i.Config.Entrypoint...), i.Config.Cmd...)
	if len(words) > 0 && path.Base(words[0]) == goRunner {
		words = words[1:]
		for len(words) > 0 && strings.HasPrefix(words[0], "-") { // its own flags
			words = words[1:]
		}
	}
	if otherwise != "" && (len(words) == 0 || path.Base(words[0]) != path.Base(otherwise)) {
		words = []string{otherwise}
	}
	if len(words) == 0 {
		return "", fmt.Errorf("the image %s has no entry point, which would name its program", i.Reference)
	}
	if file, err = i.find(words[0]); err != nil {
		return "", fmt.Errorf("find the program %s of the image %s: %w", words[0], i.Reference, err)
	}
	return file, nil
}

// find finds an executable file by its path, or by its name in the image's PATH.
func (i Image) find(program string) (string, error) {
	root, err := os.OpenRoot(i.Root)
	if err != nil {
		return "", err
	}
	defer root.Close()
	candidates := []string{program}
	if !strings.Contains(program, "/") {
		candidates = nil
		for _, dir := range i.path() {
			candidates = append(candidates, path.Join(dir, program))
		}
	} else if !path.IsAbs(program) {
		candidates = []string{path.Join("/", i.Config.WorkingDir, program)}
	}
	for _, candidate := range candidates {
		name := strings.TrimPrefix(path.Clean(candidate), "/")
		info, err := root.Stat(name)
		if err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
			return filepath.EvalSymlinks(filepath.Join(i.Root, filepath.FromSlash(name)))
		}
	}
	return "", fmt.Errorf("there is no executable file %s", strings.Join(candidates, " or "))
}

// path is the image's PATH.
func (i Image) path() []string {
	for _, variable := range i.Config.Env {
		if value, ok := strings.CutPrefix(variable, "PATH="); ok {
			return strings.Split(value, ":")
		}
	}
	return []string{"/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"}
}

// LinkOrCopy makes a program of the store one of another folder: the same file where the file system can do that.
func LinkOrCopy(from, to string) error {
	if err := os.Link(from, to); err == nil || errors.Is(err, fs.ErrExist) {
		return err
	}
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o755)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}
