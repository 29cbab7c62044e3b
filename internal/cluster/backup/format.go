// Package backup writes and reads the backup file of a cluster: a tar of the objects, Secrets and files that it was
// made from and of a snapshot of its etcd, encrypted with age. It needs no Slipway to be opened: age -d FILE | tar x.
//
// The tar is written and read in one pass. Its first entry, header.json, says what it is of, so that a reader can
// refuse early; manifest.json, after all content, has the size and SHA-256 of all entries before it, which are known
// only then. The snapshot, whose size is not known beforehand either, is stored between them in parts: cat
// etcd/snapshot.db.* is the file that etcdutl restores.
//
// Encryption for a public key does not show who wrote a backup: everybody may have that key. So the last entry,
// authentication.json, has an HMAC of manifest.json by a key of the cluster, where the writer was given that.
package backup

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/slipway-k8s/slipway/internal/base/keys"
)

// Format is the version of the format that Write writes, and the newest that Open reads. It grows when an older reader
// could not restore what a newer writer wrote. Format 2 has who made the backup, and its authentication.
const Format = 2

// authenticated is the first format with an authentication.
const authenticated = 2

// Names of the tar's entries.
const (
	headerEntry    = "header.json"
	configEntry    = "bootstrap.yaml"
	releasesEntry  = "releases.json"
	inventoryEntry = "inventory.json"
	manifestEntry  = "manifest.json"

	authenticationEntry = "authentication.json" // after the manifest; a backup that is not authenticated has none

	objectsFolder  = "objects/" // <namespace>/<Kind>.<group>/<name>.yaml
	secretsFolder  = "secrets/" // <namespace>/<name>.yaml
	snapshotPrefix = "etcd/snapshot.db."
)

// fileFolders are those that Contents.Files may lie in: the two that Slipway reads when they are in its working
// directory, and what it made of them.
var fileFolders = []string{"manifests/", "bootstrap/", "rendered/"}

// Header says what a backup is of.
type Header struct {
	Format  int       `json:"format"`
	Cluster string    `json:"cluster"` // its name
	UID     string    `json:"uid"`     // of the namespace kube-system: which cluster of that name it is
	Taken   time.Time `json:"taken"`   // when it was begun; the snapshot is a moment younger
	Slipway string    `json:"slipway"` // version of the command that wrote it
	// Environment is "hetzner" or "lab"; empty in format 1.
	Environment string `json:"environment,omitempty"`
	// Host is the name of the machine that wrote it; empty in format 1.
	Host        string `json:"host,omitempty"`
	SelfManaged bool   `json:"selfManaged"`
	// FromServers tells that the Cluster API objects were lost, and were made from the servers, without what webhooks
	// fill in.
	FromServers bool              `json:"fromServers,omitempty"`
	Versions    map[string]string `json:"versions"` // by variable: "TALOS_VERSION" → "v1.12.2"
	Etcd        Etcd              `json:"etcd"`
}

// Scope is the cluster whose keys authenticate the backup, as it says itself.
func (h Header) Scope() keys.Scope { return keys.Scope{Environment: h.Environment, Cluster: h.Cluster} }

// Etcd is the etcd cluster that the snapshot is of, a moment before.
type Etcd struct {
	// Revision is the store's when the backup began; the snapshot's own is this or higher.
	Revision int64        `json:"revision"`
	Members  []EtcdMember `json:"members"`
	From     string       `json:"from"` // address of the node that gave the snapshot
}

// EtcdMember is one member of it.
type EtcdMember struct {
	ID      string `json:"id"`   // hexadecimal, as etcdctl prints it
	Name    string `json:"name"` // of its node
	Learner bool   `json:"learner,omitempty"`
}

// Contents is everything in a backup but the snapshot's bytes.
type Contents struct {
	Header Header
	// Config is the whole configuration, in the form of bootstrap.yaml: Slipway reads it as that. There is no token in it.
	Config []byte
	// Files are the manifests and values files that were used, and what was rendered from them.
	Files    []File
	Releases []Release
	// Objects are Cluster API's and its providers', with their status, and the ConfigMaps that belong to them.
	Objects []unstructured.Unstructured
	// Secrets are the cluster's (<cluster>-talos, -ca, -kubeconfig, …), and the Hetzner token's.
	Secrets   []unstructured.Unstructured
	Inventory Inventory
	Snapshot  Snapshot
	Origin    Origin // of what was read; nothing of it is written
}

// File is a file in one of the folders manifests, bootstrap and rendered.
type File struct {
	Name string // slash-separated: "manifests/cluster.yaml"
	Data []byte
}

// Release is a Helm release as it is deployed.
type Release struct {
	Name       string         `json:"name"`
	Namespace  string         `json:"namespace"`
	Chart      string         `json:"chart"`
	Version    string         `json:"version"`    // of the chart
	Repository string         `json:"repository"` // that the configuration names
	Values     map[string]any `json:"values"`     // given by Slipway's values file, over the chart's own
}

// Inventory is what the cluster has at Hetzner.
type Inventory struct {
	Resources []Resource `json:"resources"`
}

// Resource is one thing at Hetzner.
type Resource struct {
	Kind      string            `json:"kind"` // "server", "load balancer", …
	ID        int64             `json:"id"`
	Name      string            `json:"name"`
	Type      string            `json:"type,omitempty"`
	Location  string            `json:"location,omitempty"`
	Addresses []string          `json:"addresses,omitempty"` // public ones first; of a network its range
	Labels    map[string]string `json:"labels,omitempty"`
}

// Snapshot is the etcd snapshot, as the Talos API streams it and takes it back.
type Snapshot struct {
	Size   int64  `json:"size"`   // bytes, with the trailer
	SHA256 string `json:"sha256"` // of all of it, hexadecimal
	Parts  int    `json:"parts"`
}

// manifest is the entry after all content.
type manifest struct {
	Format   int      `json:"format"`
	Entries  []entry  `json:"entries"` // all before it, in their order
	Snapshot Snapshot `json:"snapshot"`
}

// entry is one of the tar's.
type entry struct {
	Name   string `json:"name"`
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256"`
}

// partName is the entry of the snapshot's nth part, from 0. Five digits keep the order of a shell's *.
func partName(n int) string { return fmt.Sprintf("%s%05d", snapshotPrefix, n) }
