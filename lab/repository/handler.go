package repository

import (
	"bytes"
	"encoding/json"
	"io/fs"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"
)

// Handler serves the charts that Write put into dir, for reading only: the
// classic repository (index.yaml and archives) at the root, and below /v2/ the
// same charts as an OCI registry, where upstream has them in one. It reads from
// disk, so what a later Write makes is served without further ado.
func Handler(dir string) http.Handler {
	charts := os.DirFS(filepath.Join(dir, chartsFolder))
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{file}", func(w http.ResponseWriter, r *http.Request) {
		content, err := fs.ReadFile(charts, r.PathValue("file"))
		if err != nil {
			http.NotFound(w, r)
			return
		}
		serve(w, r, contentType(r.PathValue("file")), content)
	})
	// Clients request this to find out whether the server is a registry.
	mux.HandleFunc("GET /v2/{$}", func(w http.ResponseWriter, r *http.Request) {
		serve(w, r, "application/json", []byte("{}"))
	})
	mux.HandleFunc("GET /v2/", func(w http.ResponseWriter, r *http.Request) {
		name := strings.TrimPrefix(path.Clean(r.URL.Path), "/")
		content, err := fs.ReadFile(charts, name)
		if err != nil {
			serveOCIError(w, name)
			return
		}
		if kind := ociKind(name); kind == "manifests" || kind == "blobs" {
			w.Header().Set("Docker-Content-Digest", ociDigest(content))
		}
		serve(w, r, contentType(name), content)
	})
	return mux
}

// serve answers with content; ServeContent knows HEAD and ranges.
func serve(w http.ResponseWriter, r *http.Request, mediaType string, content []byte) {
	w.Header().Set("Content-Type", mediaType)
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(content))
}

// contentType is the media type of a file of the repository, or of a path of
// the registry.
func contentType(name string) string {
	switch ociKind(name) {
	case "manifests":
		return manifestType
	case "blobs":
		return "application/octet-stream"
	case "tags":
		return "application/json"
	}
	if path.Ext(name) == ".yaml" {
		return "application/yaml"
	}
	return "application/gzip"
}

// ociKind is what a path of the registry ends in: manifests/<reference>,
// blobs/<digest> or tags/list.
func ociKind(name string) string { return path.Base(path.Dir(name)) }

// serveOCIError answers as a registry does that does not have the object.
func serveOCIError(w http.ResponseWriter, name string) {
	code := "NAME_UNKNOWN"
	switch ociKind(name) {
	case "manifests":
		code = "MANIFEST_UNKNOWN"
	case "blobs":
		code = "BLOB_UNKNOWN"
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusNotFound)
	// An error of the connection cannot be reported to the client.
	_ = json.NewEncoder(w).Encode(map[string]any{
		"errors": []map[string]string{{"code": code, "message": "not in the lab's registry: " + name}},
	})
}
