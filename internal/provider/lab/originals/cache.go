package originals

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/slipway-k8s/slipway/internal/client/images"
	"github.com/slipway-k8s/slipway/internal/client/kube"
)

// listFile, in the folder of a release, says what is in it. The lab reads it.
const listFile = "original.json"

// list is the content of listFile.
type list struct {
	Project  string         `json:"project"`
	Version  string         `json:"version"`
	Source   string         `json:"source"`
	Files    []fetched      `json:"files"`
	Chart    map[string]any `json:"chart,omitempty"` // its Chart.yaml; none: the files are a manifest
	Programs []program      `json:"programs"`
}

// fetched is a file of a release in the cache.
type fetched struct {
	Name   string `json:"name"`
	From   string `json:"from"`
	SHA256 string `json:"sha256"`
}

// pinned reports whether the digest of the file is recorded: a file of this machine is the operator's to change.
func (f fetched) pinned() bool { return !filepath.IsAbs(f.From) }

// program is the program of an image, in the cache.
type program struct {
	Image  string   `json:"image"` // as the Pods name it
	Digest string   `json:"digest"`
	File   string   `json:"file"`
	Prefix []string `json:"prefix,omitempty"` // the image's arguments before those of a container
}

// home is the folder of a release. The content of files of this machine is a part of its name.
func (c *Cache) home(r Release) string {
	hash := sha256.New()
	fmt.Fprintf(hash, "%s/%s %s %s\n", runtime.GOOS, runtime.GOARCH, r.Version, r.Source)
	for _, f := range r.files {
		if filepath.IsAbs(f.address) {
			data, _ := os.ReadFile(f.address) // an error is Fetch's
			fmt.Fprintf(hash, "%s %x\n", f.name, sha256.Sum256(data))
		}
	}
	name := strings.ReplaceAll(r.Project+"-"+r.Version, "/", "-")
	return filepath.Join(c.Dir, name+"-"+hex.EncodeToString(hash.Sum(nil))[:12])
}

// Cached is the folder of a release that the cache has whole; empty: it has to be fetched. It sends no request. One
// whose digests are not the recorded ones is not taken for cached: the operator has accepted others.
func (c *Cache) Cached(r Release) (string, error) {
	dir := filepath.Join(c.home(r), "bin")
	l, err := readList(dir)
	if err != nil {
		return "", nil // a folder without the list is not whole
	}
	for _, f := range l.Files {
		data, err := os.ReadFile(filepath.Join(dir, f.Name))
		if err != nil || digestOf(data) != f.SHA256 {
			return "", nil
		}
		if !f.pinned() {
			continue
		}
		if pinned, err := c.Store.Pinned(f.From); err != nil || pinned != f.SHA256 {
			return "", err
		}
	}
	for _, p := range l.Programs {
		if _, err := os.Stat(filepath.Join(dir, p.File)); err != nil {
			return "", nil
		}
		if recorded, err := c.Store.Recorded(p.Image); err != nil || recorded != p.Digest {
			return "", err
		}
	}
	return dir, nil
}

// Whole reports whether a folder that Cached or Fetch returned before is still that of a release.
func Whole(dir string) bool {
	_, err := readList(dir)
	return err == nil
}

// Digests are those of the images that a release's programs are from; none: the folder is not whole.
func Digests(dir string) (digests []string) {
	l, _ := readList(dir)
	for _, p := range l.Programs {
		digests = append(digests, p.Digest)
	}
	return digests
}

func readList(dir string) (l list, err error) {
	data, err := os.ReadFile(filepath.Join(dir, listFile))
	if err == nil {
		err = json.Unmarshal(data, &l)
	}
	return l, err
}

func digestOf(data []byte) string {
	sum := sha256.Sum256(data)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// Fetch makes sure that the cache has a release, and returns its folder. The first use of a file and of an image
// records its digest; another one is refused later. Callers exclude each other.
func (c *Cache) Fetch(ctx context.Context, r Release, progress *images.Progress) (string, error) {
	if dir, err := c.Cached(r); err != nil || dir != "" {
		return dir, err
	}
	l, contents, references, err := c.download(ctx, r)
	if err != nil {
		return "", err
	}
	for _, f := range l.Files {
		if f.pinned() {
			if err := c.Store.Pin(ctx, f.From, f.SHA256, r.Source); err != nil {
				return "", err
			}
		}
	}
	var pulled []images.Image
	for _, reference := range references {
		image, err := c.Store.Fetch(ctx, reference, progress)
		if err != nil {
			return "", err
		}
		pulled = append(pulled, image)
	}
	dir, err := c.assemble(c.home(r), l, contents, pulled)
	if err != nil {
		return "", fmt.Errorf("put %s into %s: %w", r.Name(), c.Dir, err)
	}
	return dir, nil
}

// download gets the manifest or chart of a release, and finds the images in it.
func (c *Cache) download(ctx context.Context, r Release) (l list, contents [][]byte, references []string, err error) {
	within := cmp.Or(c.Within, DefaultWithin)
	ctx, cancel := context.WithTimeoutCause(ctx, within, fmt.Errorf("%s did not come within %s", r.Source, within))
	defer cancel()
	l = list{Project: r.Project, Version: r.Version, Source: r.Source}
	if r.chart != nil {
		contents, references, err = c.downloadChart(ctx, r, &l)
	} else {
		contents, references, err = downloadManifest(ctx, r, &l)
	}
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return l, contents, references, err
}

func downloadManifest(ctx context.Context, r Release, l *list) (contents [][]byte, references []string, err error) {
	for i, f := range r.files {
		data, err := get(ctx, f.address)
		if err != nil {
			return nil, nil, err
		}
		if i == 0 {
			if strings.Contains(string(data), markOfStandIns) {
				return nil, nil, errStandIn
			}
			if references, err = imagesOf(data); err != nil {
				return nil, nil, &CorruptError{kube.WithoutCredentials(f.address), err}
			}
		}
		l.Files = append(l.Files, fetched{f.name, kube.WithoutCredentials(f.address), digestOf(data)})
		contents = append(contents, data)
	}
	return contents, references, nil
}

func (c *Cache) downloadChart(ctx context.Context, r Release, l *list) ([][]byte, []string, error) {
	scratch, err := os.MkdirTemp("", "slipway-chart-")
	if err != nil {
		return nil, nil, err
	}
	defer os.RemoveAll(scratch)
	archive, err := kube.DownloadChart(ctx, *r.chart, scratch, io.Discard)
	if err != nil {
		return nil, nil, err
	}
	read, err := kube.ReadChart(archive)
	if err == nil && read.Metadata.Annotations[markOfStandIns] != "" {
		return nil, nil, errStandIn
	}
	var references []string
	if err == nil {
		references, err = imagesOfChart(read)
	}
	if err == nil {
		l.Chart, err = metadata(read.Metadata)
	}
	if err != nil {
		return nil, nil, &CorruptError{"chart " + r.chart.String(), err}
	}
	name := fmt.Sprintf("%s-%s.tgz", r.chart.Name, r.Version)
	from := strings.TrimSuffix(r.Source, "/") + "/" + r.chart.Name + ":" + r.Version
	l.Files = []fetched{{name, from, digestOf(archive)}}
	return [][]byte{archive}, references, nil
}

// metadata is a chart's Chart.yaml as plain data.
func metadata(of any) (data map[string]any, err error) {
	text, err := json.Marshal(of)
	if err == nil {
		err = json.Unmarshal(text, &data)
	}
	return data, err
}

// assemble makes the folder of a release beside it and renames it.
func (c *Cache) assemble(home string, l list, contents [][]byte, pulled []images.Image) (string, error) {
	unfinished, dir := filepath.Join(home, "unfinished"), filepath.Join(home, "bin")
	if err := os.RemoveAll(unfinished); err != nil {
		return "", err
	}
	if err := os.MkdirAll(unfinished, 0o755); err != nil {
		return "", err
	}
	for i, f := range l.Files {
		if err := os.WriteFile(filepath.Join(unfinished, f.Name), contents[i], 0o644); err != nil {
			return "", err
		}
	}
	for _, image := range pulled {
		file, err := image.Program("")
		if err != nil {
			return "", &CorruptError{"the image " + image.Reference, err}
		}
		p := program{Image: image.Reference, Digest: image.Digest, File: programName(image.Reference)}
		if entry := image.Config.Entrypoint; len(entry) > 1 {
			p.Prefix = entry[1:]
		}
		if err := images.LinkOrCopy(file, filepath.Join(unfinished, p.File)); err != nil {
			return "", err
		}
		l.Programs = append(l.Programs, p)
	}
	data, err := json.MarshalIndent(l, "", "  ")
	if err == nil {
		err = os.WriteFile(filepath.Join(unfinished, listFile), data, 0o644)
	}
	if err == nil {
		err = os.RemoveAll(dir) // one whose digests are not accepted any more; labs keep what they have open
	}
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		err = os.Rename(unfinished, dir)
	}
	return dir, err
}

// programName is the last part of an image's name.
func programName(reference string) string {
	bare, _, _ := strings.Cut(reference, "@")
	name, _, _ := strings.Cut(path.Base(bare), ":")
	return name
}
