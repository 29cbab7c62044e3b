package kind

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
)

// findImage is the image that a node is created from, and whether it is on this machine; kind pulls what is not. An
// image that was loaded, as without a way to a registry, has no digest: then the local one of the same tag is it. One
// that has another digest is another image.
func findImage(ctx context.Context, engine, image string) (used string, there bool) {
	look := func(name string) ([]byte, bool) {
		out, err := output(ctx, engine, "inspect", "--type=image", name)
		return out, err == nil
	}
	if _, there := look(image); there {
		return image, true
	}
	tag, digest, pinned := strings.Cut(image, "@")
	if !pinned {
		return image, false
	}
	out, there := look(tag)
	var local []struct{ RepoDigests []string }
	if !there || json.Unmarshal(out, &local) != nil || len(local) != 1 {
		return image, false
	}
	known := local[0].RepoDigests
	if len(known) > 0 && !slices.ContainsFunc(known, func(d string) bool { return strings.HasSuffix(d, "@"+digest) }) {
		return image, false
	}
	return tag, true
}
