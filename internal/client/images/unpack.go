package images

import (
	"archive/tar"
	"bufio"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/klauspost/compress/zstd"
)

// bounds are those on what an image may unpack to: a small layer can be a large one compressed.
type bounds struct {
	bytes int64 // of all uncompressed layers together, and so of what is written
	files int   // entries of all layers, and the folders that they are in
}

// imageBounds are those of every image.
func imageBounds() bounds { return bounds{bytes: 4 << 30, files: 200_000} }

// unpack unpacks an image's layers, beside their folder, and renames it when it is whole.
func (s *Store) unpack(ctx context.Context, manifest v1.Hash, m *v1.Manifest, config *v1.ConfigFile) error {
	dir := s.root(manifest)
	return unlessThere(ctx, dir, func() error {
		unfinished := dir + ".unfinished"
		if err := os.RemoveAll(unfinished); err != nil { // of a pull that was killed
			return err
		}
		if err := os.Mkdir(unfinished, 0o755); err != nil {
			return err
		}
		if err := s.unpackLayers(ctx, unfinished, m, config); err != nil {
			return errors.Join(err, os.RemoveAll(unfinished))
		}
		return os.Rename(unfinished, dir)
	})
}

func (s *Store) unpackLayers(ctx context.Context, dir string, m *v1.Manifest, config *v1.ConfigFile) error {
	if len(config.RootFS.DiffIDs) != len(m.Layers) {
		return fmt.Errorf("the manifest has %d layers and the configuration %d", len(m.Layers), len(config.RootFS.DiffIDs))
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	u := &unpacker{root: root, most: imageBounds()}
	for i, layer := range m.Layers {
		if err := s.unpackLayer(ctx, u, layer.Digest, config.RootFS.DiffIDs[i]); err != nil {
			return fmt.Errorf("layer %d of %d (%s): %w", i+1, len(m.Layers), layer.Digest, err)
		}
	}
	return u.checkLinks()
}

// unpackLayer verifies the layer once more, as it reads it: as it was received, and uncompressed.
func (s *Store) unpackLayer(ctx context.Context, u *unpacker, digest, diffID v1.Hash) error {
	file, err := os.Open(s.blobPath(digest))
	if err != nil {
		return err
	}
	defer file.Close()
	packed, plain := sha256.New(), sha256.New()
	in := io.TeeReader(file, packed)
	uncompressed, err := uncompress(in)
	if err != nil {
		return err
	}
	defer uncompressed.Close()
	content := io.TeeReader(u.bounded(uncompressed), plain)
	if err := u.layer(ctx, content); err != nil {
		return err
	}
	// The rest of both, which belongs to the digests.
	if _, err := io.Copy(io.Discard, content); err != nil {
		return err
	}
	if _, err := io.Copy(io.Discard, in); err != nil {
		return err
	}
	if got := hex.EncodeToString(packed.Sum(nil)); got != digest.Hex {
		return errors.Join(fmt.Errorf("in the cache it has the digest sha256:%s: it is removed, and fetched again by the "+
			"next attempt", got), os.Remove(s.blobPath(digest)))
	}
	if got := hex.EncodeToString(plain.Sum(nil)); got != diffID.Hex {
		return fmt.Errorf("uncompressed it has the digest sha256:%s, and the image's configuration says %s", got, diffID)
	}
	return nil
}

// uncompress reads a layer that is compressed with gzip or zstd, or not at all.
func uncompress(in io.Reader) (io.ReadCloser, error) {
	buffered := bufio.NewReaderSize(in, 64<<10)
	magic, err := buffered.Peek(4)
	if err != nil && err != io.EOF {
		return nil, err
	}
	switch {
	case len(magic) >= 2 && magic[0] == 0x1f && magic[1] == 0x8b:
		return gzip.NewReader(buffered)
	case string(magic) == "\x28\xb5\x2f\xfd":
		decoder, err := zstd.NewReader(buffered, zstd.WithDecoderMaxMemory(256<<20), zstd.WithDecoderConcurrency(1))
		if err != nil {
			return nil, err
		}
		return decoder.IOReadCloser(), nil
	default:
		return io.NopCloser(buffered), nil
	}
}

// unpacker writes layers into a folder that nothing leaves: every access goes through os.Root.
type unpacker struct {
	root    *os.Root
	most    bounds
	read    int64 // of all layers, uncompressed
	written int64 // into files
	files   int
	layed   map[string]bool // what the present layer has written, with the folders above it
	emptied map[string]bool // folders that have nothing of lower layers any more
}

// bounded reads a layer, and fails where the image is larger than it may be.
func (u *unpacker) bounded(layer io.Reader) io.Reader {
	return &boundedReader{inner: layer, unpacker: u}
}

type boundedReader struct {
	inner    io.Reader
	unpacker *unpacker
}

func (r *boundedReader) Read(p []byte) (int, error) {
	n, err := r.inner.Read(p)
	if r.unpacker.read += int64(n); r.unpacker.read > r.unpacker.most.bytes {
		return 0, r.unpacker.tooLarge()
	}
	return n, err
}

func (u *unpacker) tooLarge() error {
	return fmt.Errorf("the image unpacks to more than %d bytes: it is refused", u.most.bytes)
}

// count counts one more file or folder.
func (u *unpacker) count() error {
	if u.files++; u.files > u.most.files {
		return fmt.Errorf("the image has more than %d files and folders: it is refused", u.most.files)
	}
	return nil
}

// layer applies one layer.
func (u *unpacker) layer(ctx context.Context, content io.Reader) error {
	u.layed, u.emptied = map[string]bool{}, map[string]bool{}
	for files := tar.NewReader(content); ; {
		header, err := files.Next()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err := u.count(); err != nil {
			return err
		}
		if err := u.entry(header, files); err != nil {
			return fmt.Errorf("%q: %w", shortened(header.Name), err)
		}
	}
}

// shortened is a path for an error: one of an archive can have a megabyte.
func shortened(name string) string {
	if len(name) > maxPath {
		return name[:maxPath] + "…"
	}
	return name
}

// checkSparse refuses a file with holes, in each of the forms in which an archive describes them: the size of such a
// file has nothing to do with what the archive has of it. Image layers have none.
func checkSparse(header *tar.Header) error {
	sparse := header.Typeflag == tar.TypeGNUSparse
	for key := range header.PAXRecords {
		sparse = sparse || strings.HasPrefix(key, sparseRecords)
	}
	if sparse {
		return errors.New("it is a sparse file: it is refused")
	}
	return nil
}

// sparseRecords is how the extended headers of sparse files begin: of GNU tar's formats 0.0, 0.1 and 1.0.
const sparseRecords = "GNU.sparse."

// Bounds on one path of an archive, each below those of Linux: a longer one costs time with each access.
const (
	maxPath  = 4095
	maxDepth = 128
)

// inside is a path of the archive as one below the folder.
func inside(entry string) (string, error) {
	clean := path.Clean(strings.TrimPrefix(entry, "./"))
	if len(clean) > maxPath || strings.Count(clean, "/") >= maxDepth {
		return "", fmt.Errorf("the path has more than %d bytes or %d folders: it is refused", maxPath, maxDepth)
	}
	if path.IsAbs(entry) || !filepath.IsLocal(clean) {
		return "", errors.New("the path leaves the image's folder: it is refused")
	}
	return clean, nil
}

func (u *unpacker) entry(header *tar.Header, content io.Reader) error {
	if err := checkSparse(header); err != nil {
		return err
	}
	name, err := inside(header.Name)
	if err != nil {
		return err
	}
	if base := path.Base(name); strings.HasPrefix(base, whiteoutPrefix) {
		return u.whiteout(path.Dir(name), base)
	}
	if name == "." || header.Typeflag == tar.TypeXGlobalHeader {
		return nil
	}
	if err := u.lay(name); err != nil {
		return err
	}
	if err := u.root.MkdirAll(path.Dir(name), 0o755); err != nil {
		return err
	}
	if header.Typeflag == tar.TypeDir {
		return u.directory(name)
	}
	// What a lower layer has here is replaced and not written through.
	if err := u.root.RemoveAll(name); err != nil {
		return err
	}
	switch header.Typeflag {
	case tar.TypeReg:
		return u.file(name, header, content)
	case tar.TypeSymlink:
		return u.symlink(name, header.Linkname)
	case tar.TypeLink:
		target, err := inside(strings.TrimPrefix(header.Linkname, "/"))
		if err != nil {
			return fmt.Errorf("a hard link to %q: %w", header.Linkname, err)
		}
		return u.root.Link(target, name)
	default:
		return fmt.Errorf("it is neither a file, a folder nor a link (type %q): it is refused", header.Typeflag)
	}
}

// lay notes that the present layer has a path, and counts the folders above it that it had not: they are created.
func (u *unpacker) lay(name string) error {
	for at := path.Dir(name); at != "." && !u.layed[at]; at = path.Dir(at) {
		u.layed[at] = true
		if err := u.count(); err != nil {
			return err
		}
	}
	u.layed[name] = true
	return nil
}

func (u *unpacker) directory(name string) error {
	info, err := u.root.Lstat(name)
	if err == nil && !info.IsDir() {
		err = u.root.Remove(name)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return u.root.MkdirAll(name, 0o755)
}

// file writes a file for its owner, without setuid, setgid and sticky bits.
func (u *unpacker) file(name string, header *tar.Header, content io.Reader) error {
	mode := fs.FileMode(header.Mode)&0o755 | 0o600
	file, err := u.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	left := u.most.bytes - u.written
	n, err := io.Copy(file, io.LimitReader(content, left+1))
	if u.written += n; err == nil && n > left {
		err = u.tooLarge()
	}
	return errors.Join(err, file.Chmod(mode), file.Close())
}

// symlink writes a link. An absolute one is meant inside the image, so it is made relative.
func (u *unpacker) symlink(name, target string) error {
	if path.IsAbs(target) {
		up := strings.Repeat("../", strings.Count(name, "/"))
		target = path.Join(up, path.Clean(target)[1:])
		if target == "" {
			target = "."
		}
	}
	if !filepath.IsLocal(path.Join(path.Dir(name), target)) {
		return fmt.Errorf("a symbolic link to %q leaves the image's folder: it is refused", target)
	}
	return u.root.Symlink(target, name)
}
