package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"debug/buildinfo"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

const (
	// imageProgram is the name of the image, and of the program in its root.
	imageProgram = "slipway"
	// imageUser and its group have no name: the image has no /etc/passwd.
	imageUser = 65532
	// imageWorkDir belongs to that user. A volume over it keeps what a run writes.
	imageWorkDir = "work"
	// labelPrefix begins the labels that the OCI image specification defines.
	labelPrefix = "org.opencontainers.image."
)

// notInTag is what a version may have and a tag may not.
var notInTag = regexp.MustCompile(`[^A-Za-z0-9_.-]+`)

// errNoLinux is found before anything is built.
var errNoLinux = errors.New("an image needs a binary for Linux: add linux/amd64 or linux/arm64 to -targets")

// binary is a program that is built for Linux.
type binary struct{ arch, path string }

// image is an image for each architecture of the release, under one index.
type image struct {
	index v1.ImageIndex
	tag   string
}

// newImage makes an image of binaries of one commit. Its bytes depend on them alone.
func newImage(binaries []binary) (image, error) {
	made := image{index: empty.Index} // of OCI's media type
	for _, b := range binaries {
		info, err := buildinfo.ReadFile(b.path)
		if err != nil {
			return image{}, err
		}
		one, err := imageOf(b, info)
		if err != nil {
			return image{}, fmt.Errorf("make an image of %s: %w", b.path, err)
		}
		made.tag = notInTag.ReplaceAllString(info.Main.Version, "-")
		made.index = mutate.AppendManifests(made.index, mutate.IndexAddendum{Add: one, Descriptor: v1.Descriptor{
			Platform: &v1.Platform{OS: "linux", Architecture: b.arch}}})
	}
	return made, nil
}

// imageOf is the image for one architecture.
func imageOf(b binary, info *debug.BuildInfo) (v1.Image, error) {
	packed, err := packRoot(b.path)
	if err != nil {
		return nil, err
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(packed)), nil
	}, tarball.WithMediaType(types.OCILayer))
	if err != nil {
		return nil, err
	}
	settings := map[string]string{}
	for _, s := range info.Settings {
		settings[s.Key] = s.Value
	}
	created := time.Unix(0, 0).UTC()
	if at, err := time.Parse(time.RFC3339, settings["vcs.time"]); err == nil {
		created = at
	}
	config := v1.ConfigFile{OS: "linux", Architecture: b.arch, Created: v1.Time{Time: created},
		RootFS: v1.RootFS{Type: "layers"}, Config: v1.Config{
			Entrypoint: []string{"/" + imageProgram},
			User:       fmt.Sprintf("%d:%d", imageUser, imageUser),
			WorkingDir: "/" + imageWorkDir,
			Labels: map[string]string{
				labelPrefix + "title":    imageProgram,
				labelPrefix + "version":  info.Main.Version,
				labelPrefix + "revision": settings["vcs.revision"],
				labelPrefix + "source":   "https://" + info.Main.Path,
				labelPrefix + "licenses": "Apache-2.0",
			}}}
	base := mutate.MediaType(mutate.ConfigMediaType(empty.Image, types.OCIConfigJSON), types.OCIManifestSchema1)
	configured, err := mutate.ConfigFile(base, &config)
	if err != nil {
		return nil, err
	}
	return mutate.Append(configured, mutate.Addendum{Layer: layer, MediaType: types.OCILayer,
		History: v1.History{Created: v1.Time{Time: created}, CreatedBy: "go run ./hack/release -image"}})
}

// packRoot packs the image's files: the program, and the two folders that it writes to. They have no times.
func packRoot(program string) ([]byte, error) {
	data, err := os.ReadFile(program)
	if err != nil {
		return nil, err
	}
	var packed bytes.Buffer
	out := gzip.NewWriter(&packed)
	files := tar.NewWriter(out)
	err = errors.Join(
		files.WriteHeader(&tar.Header{Name: imageProgram, Typeflag: tar.TypeReg, Mode: 0o755, Size: int64(len(data))}),
		write(files, data),
		files.WriteHeader(&tar.Header{Name: "tmp/", Typeflag: tar.TypeDir, Mode: 0o1777}),
		files.WriteHeader(&tar.Header{Name: imageWorkDir + "/", Typeflag: tar.TypeDir, Mode: 0o755, Uid: imageUser,
			Gid: imageUser}),
		files.Close(), out.Close())
	return packed.Bytes(), err
}

func write(w io.Writer, data []byte) error {
	_, err := w.Write(data)
	return err
}

// save writes the image into a folder, as an archive of an OCI image layout, and returns the archive's name.
func (i image) save(out string) (archive string, err error) {
	temporary, err := os.MkdirTemp("", "slipway-image-")
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(temporary)) }()
	path, err := layout.Write(temporary, empty.Index)
	if err == nil {
		err = path.AppendIndex(i.index, layout.WithAnnotations(map[string]string{labelPrefix + "ref.name": i.tag}))
	}
	if err != nil {
		return "", fmt.Errorf("write an OCI image layout: %w", err)
	}
	archive = fmt.Sprintf("%s-%s-oci.tar", imageProgram, i.tag)
	file, err := os.Create(filepath.Join(out, archive))
	if err != nil {
		return "", err
	}
	files := tar.NewWriter(file)
	err = filepath.WalkDir(temporary, func(path string, entry fs.DirEntry, err error) error { // sorted
		if err != nil || entry.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(temporary, path)
		if err != nil {
			return err
		}
		header := &tar.Header{Name: filepath.ToSlash(name), Typeflag: tar.TypeReg, Mode: 0o644, Size: int64(len(data))}
		return errors.Join(files.WriteHeader(header), write(files, data))
	})
	return archive, errors.Join(err, files.Close(), file.Close())
}

// parsePush reads where to push to. Neither a registry nor a tag is assumed.
func parsePush(reference string) (name.Tag, error) {
	tag, err := name.NewTag(reference, name.StrictValidation)
	if err != nil {
		return tag, fmt.Errorf("-push %s: %w: write registry/repository:tag", reference, err)
	}
	return tag, nil
}

// push pushes the image with the credentials that docker login and the like have stored.
func (i image) push(ctx context.Context, to name.Tag) error {
	digest, err := i.index.Digest()
	if err != nil {
		return err
	}
	if err := remote.WriteIndex(to, i.index, remote.WithContext(ctx),
		remote.WithAuthFromKeychain(authn.DefaultKeychain)); err != nil {
		return fmt.Errorf("push the image to %s: %w", to, err)
	}
	fmt.Printf("pushed: %s@%s\n", to, digest)
	return nil
}
