package config

import (
	"fmt"
	"maps"
	"net/netip"
	"net/url"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/blang/semver/v4"
	"sigs.k8s.io/yaml"

	"github.com/slipway-k8s/slipway/internal/base/keys"
	"github.com/slipway-k8s/slipway/internal/client/kube"
	"github.com/slipway-k8s/slipway/internal/client/objectstore"
)

// FieldError says what is wrong with one field of the configuration and what to do about it.
type FieldError struct {
	Field   string // the field's name as in bootstrap.yaml: "networkCidr"
	Value   string // as it was written, but for the password in an address
	Problem string
	Hint    string // what to do next

	With []string // fields that this one does not go together with
}

// Error implements error.
func (e FieldError) Error() string {
	s := fmt.Sprintf("%s: %q %s", e.Field, e.Value, e.Problem)
	if e.Hint != "" {
		s += ": " + e.Hint
	}
	return s
}

// Limits whose source is outside this project.
const (
	// maxClusterName keeps a server's name "<cluster>-control-plane-<5 hash>-<5 random>" well inside a host name's 63.
	maxClusterName = 32
	// maxReplicas: a spread placement group of Hetzner holds 10 servers, and a rollout needs one more than there are.
	maxReplicas = 9
	// maxTimeout is more than an operator waits for, and little enough that sums of time-outs are times.
	maxTimeout = 48 * time.Hour
	// nodePodBits: every node gets a /24 of the Pod addresses (kube-controller-manager's --node-cidr-mask-size).
	nodePodBits = 24
)

// networkZones are the network zones of the locations that the HetznerCluster CRD of CAPH v1.0.7 accepts as a region
// (docs.hetzner.com/cloud/general/locations).
var networkZones = map[string]string{"ash": "us-east", "fsn1": "eu-central", "hel1": "eu-central", "hil": "us-west",
	"nbg1": "eu-central", "sin": "ap-southeast"}

// locations are what LOCATION may name.
var locations = slices.Sorted(maps.Keys(networkZones))

// loadBalancerTypes are what the HetznerCluster CRD of CAPH v1.0.7 accepts.
var loadBalancerTypes = []string{"lb11", "lb21", "lb31"}

// labProgramSources are the values of LabPrograms.
var labProgramSources = []string{LabProgramsAuto, LabProgramsImages, LabProgramsSource}

var (
	dnsLabel   = regexp.MustCompile(`^[a-z]([-a-z0-9]*[a-z0-9])?$`)
	hostName   = regexp.MustCompile(`^([a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?\.)+[a-z]([-a-z0-9]{0,61}[a-z0-9])?$`)
	hcloudName = regexp.MustCompile(`^[a-z0-9]+(-[a-z0-9]+)*$`)
	labelValue = regexp.MustCompile(`^[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$`)
	imageTag   = regexp.MustCompile(`^[^\s@]+:v(\d+)\.(\d+)\.(\d+)(@sha256:[0-9a-f]{64})?$`)
)

// Validate finds everything that is wrong with the configuration by itself. What only the cloud can know (a server
// type's name, the token) is the preflight step's.
func (c Config) Validate() []FieldError {
	v := &Findings{}
	v.cluster(c)
	v.workers(c)
	v.addons(c)
	v.Networks(c)
	v.Versions(c)
	v.sources(c)
	v.gitOps(c)
	v.gitea(c)
	v.backups(c)
	v.state(c)
	v.timeouts(c)
	return v.Errs
}

// Findings collects what is wrong with the values of a configuration.
type Findings struct{ Errs []FieldError }

func (v *Findings) add(field string, value any, problem, hint string) {
	v.Errs = append(v.Errs, FieldError{Field: field, Value: kube.WithoutCredentials(fmt.Sprint(value)), Problem: problem,
		Hint: hint})
}

// given is how many of some values are not empty.
func given(values ...string) (n int) {
	for _, value := range values {
		if value != "" {
			n++
		}
	}
	return n
}

// addPair is add where a field does not go together with another.
func (v *Findings) addPair(field, other string, value any, problem, hint string) {
	v.add(field, value, problem, hint)
	v.Errs[len(v.Errs)-1].With = []string{other}
}

func (v *Findings) cluster(c Config) {
	switch {
	case !dnsLabel.MatchString(c.ClusterName):
		v.add("clusterName", c.ClusterName, "is not a DNS label", "use lower case letters, digits and dashes, beginning "+
			"with a letter (RFC 1123)")
	case len(c.ClusterName) > maxClusterName:
		v.add("clusterName", c.ClusterName, fmt.Sprintf("is longer than %d characters", maxClusterName),
			"server names begin with it; choose a shorter one")
	}
	v.texts(c)
	v.placement(c)
	if !slices.Contains(loadBalancerTypes, c.LoadBalancerType) {
		v.add("loadBalancerType", c.LoadBalancerType, "is not a load balancer type", "choose one of "+
			strings.Join(loadBalancerTypes, ", "))
	}
	if name := c.EndpointHostName(); name != "" || c.ControlPlaneEndpoint == "" {
		v.endpointName(name)
	}
	switch n := c.ControlPlaneReplicas; {
	case n < 1:
		v.add("controlPlaneReplicas", n, "is less than one", "use 1 for a trial and 3 or 5 for a cluster that survives the "+
			"loss of a server")
	case n%2 == 0:
		v.add("controlPlaneReplicas", n, "is even", fmt.Sprintf("etcd needs a majority: %d survive no more losses than %d; "+
			"use %d or %d", n, n-1, n-1, n+1))
	case n > maxReplicas:
		v.add("controlPlaneReplicas", n, fmt.Sprintf("is more than %d", maxReplicas), "a placement group holds 10 servers "+
			fmt.Sprintf("and a rollout needs one more than there are: use %d at most", maxReplicas))
	}
	if c.ImageName != "" && !labelValue.MatchString(c.ImageName) {
		v.add("imageName", c.ImageName, "cannot be a label's value", "it is compared with the snapshot's label "+
			"caph-image-name: at most 63 letters, digits, dots, dashes and underscores")
	}
	for _, a := range Listed(c.ImageArchitectures) {
		if a != "amd64" && a != "arm64" {
			v.add("imageArchitectures", c.ImageArchitectures, fmt.Sprintf("names %q, which is no architecture", a),
				"write amd64, arm64 or both with a comma")
		}
	}
	v.oidc(c)
	if _, _, err := c.Allowed(); err != nil {
		v.add("firewallAllow", c.FirewallAllow, "cannot be read", err.Error())
	}
}

// texts checks that YAML reads names as texts, which the manifests have without quotes: not "on" as true, nor "1.12"
// as a number.
func (v *Findings) texts(c Config) {
	names := map[string]string{"clusterName": c.ClusterName, "namespace": c.Namespace, "imageName": c.ImageName}
	for i, p := range c.Workers {
		names[fmt.Sprintf("workers[%d].name", i)] = p.Name
		names[fmt.Sprintf("workers[%d].image", i)] = p.Image
	}
	for _, field := range slices.Sorted(maps.Keys(names)) {
		var is any
		if err := yaml.Unmarshal([]byte(names[field]), &is); err != nil || names[field] == "" {
			continue // other checks say more
		}
		if _, text := is.(string); !text {
			v.add(field, names[field], fmt.Sprintf("is read by YAML as %v, not as a text", is), "choose another name")
		}
	}
}

func (v *Findings) endpointName(name string) {
	choose := "write " + EndpointPrimaryIP + ", " + EndpointLoadBalancer + ", or a host name like api.example.com"
	switch _, err := netip.ParseAddr(name); {
	case name == "":
		v.add("controlPlaneEndpoint", name, "is empty", choose)
	case err == nil:
		v.add("controlPlaneEndpoint", name, "is an address", "Hetzner assigns the address, it cannot be chosen: "+choose)
	case len(name) > 253 || !hostName.MatchString(name):
		v.add("controlPlaneEndpoint", name, "is neither "+EndpointPrimaryIP+" nor "+EndpointLoadBalancer+" nor a host name "+
			"in lower case with a domain (RFC 1123)", choose)
	}
}

func (v *Findings) backups(c Config) {
	if c.BackupKeep < 0 {
		v.add("backupKeep", c.BackupKeep, "is negative", "0 keeps all backups")
	}
	v.recipients("backupRecipients", c.BackupRecipients)
	if given(c.BackupRecipients, c.BackupPassphraseFile, c.BackupPassphraseCommand) > 1 {
		v.add("backupRecipients", "…", "is given together with a passphrase, or two passphrases are",
			"keep one of backupRecipients, backupPassphraseFile and backupPassphraseCommand")
	}
	switch {
	case c.BackupTo == "":
		v.add("backupTo", "", "is empty", "name a folder, or s3://bucket/prefix")
	case !objectstore.IsS3(c.BackupTo) && strings.Contains(c.BackupTo, "://"):
		v.add("backupTo", c.BackupTo, "is neither a folder nor an S3 store", "name a folder, or s3://bucket/prefix")
	case objectstore.IsS3(c.BackupTo):
		v.bucket("backupTo", c.BackupTo, "backupS3Endpoint", c.BackupS3Endpoint)
	}
}

// recipients checks public keys. Their value is not repeated: it may be a secret key in the wrong place.
func (v *Findings) recipients(field, value string) {
	if _, err := keys.ParseRecipients(value); err != nil {
		v.add(field, "…", "cannot be read", err.Error())
	}
}

// bucket checks a place in an S3 store, and that the address of the store is given.
func (v *Findings) bucket(field, place, endpointField, endpoint string) {
	if endpoint == "" {
		v.addPair(endpointField, field, "", "is empty while "+field+" is in an S3 store",
			"Hetzner's is https://<location>.your-objectstorage.com")
	} else if _, err := objectstore.OpenBucket(place, objectstore.S3Options{Endpoint: endpoint}); err != nil {
		v.add(field, place, "cannot be used", err.Error())
	}
}

func (v *Findings) oidc(c Config) {
	switch {
	case c.OIDCIssuerURL == "" && c.OIDCClientID != "":
		v.addPair("oidcIssuerUrl", "oidcClientId", "", "is empty while oidcClientId is set", "set both, or neither")
		return
	case c.OIDCIssuerURL == "":
		return
	case c.OIDCClientID == "":
		v.addPair("oidcClientId", "oidcIssuerUrl", "", "is empty while oidcIssuerUrl is set", "set both, or neither")
	}
	if u, err := url.Parse(c.OIDCIssuerURL); err != nil || u.Scheme != "https" || u.Host == "" || u.RawQuery != "" ||
		u.Fragment != "" {
		v.add("oidcIssuerUrl", c.OIDCIssuerURL, "is not an https URL without query and fragment", "kube-apiserver accepts "+
			"no other issuer")
	}
}

// Versions checks the form of the versions, and that they go together.
func (v *Findings) Versions(c Config) {
	v.versionSet(c)
	for _, variable := range variables() {
		if _, is := componentNames()[variable.Name]; is {
			v.version(variable.Field, variable.Get(c), prefixOf(variable.Name))
		}
	}
	v.compatibility(c)
}

// prefixOf is what a component writes its versions with: charts without the v.
func prefixOf(variable string) string {
	if strings.HasSuffix(variableOf(variable).Doc, " chart") {
		return ""
	}
	return "v"
}

func (v *Findings) version(field, value, prefix string) (semver.Version, bool) {
	bare := strings.TrimPrefix(value, "v")
	parsed, err := semver.Parse(bare)
	switch {
	case err != nil:
		v.add(field, value, "is not a version", "write all three numbers, like "+prefix+"1.12.3")
	case value != prefix+bare:
		v.add(field, value, "is not written as this component writes its versions", "write "+prefix+bare)
	default:
		return parsed, true
	}
	return semver.Version{}, false
}

func (v *Findings) sources(c Config) {
	v.management(c)
	if c.ManagementProvider() == ManagementKind {
		v.KindImage(c)
	}
	if c.ProviderRepository != "" && !filepath.IsAbs(c.ProviderRepository) {
		v.add("providerRepository", c.ProviderRepository, "is not an absolute path", "clusterctl takes a local repository "+
			"only by its absolute path")
	}
	if given(c.CertManagerURL, c.CertManagerVersion) == 1 {
		v.addPair("certManagerUrl", "certManagerVersion", c.CertManagerURL,
			fmt.Sprintf("and certManagerVersion %q do not go together", c.CertManagerVersion), "set both, or neither")
	}
	if !slices.Contains(labProgramSources, c.LabPrograms) {
		v.add("labPrograms", c.LabPrograms, "is nothing that the lab's programs can come from",
			"write "+strings.Join(labProgramSources, ", "))
	}
	for _, r := range []struct{ field, value string }{
		{"ciliumRepository", c.CiliumRepository},
		{"hcloudCcmRepository", c.HCloudCCMRepository},
		{"talosCcmRepository", c.TalosCCMRepository},
	} {
		v.repository(r.field, r.value)
	}
}

// repository checks the address of a chart repository; an empty one is no mistake.
func (v *Findings) repository(field, value string) {
	u, err := url.Parse(value)
	switch {
	case value == "":
	case err != nil || !slices.Contains([]string{"http", "https", "oci"}, u.Scheme) || u.Host == "":
		v.add(field, value, "is not a chart repository's address", "write https://host/path or oci://host/path")
	case u.Scheme == "oci" && u.User != nil:
		v.add(field, value, "names a user, and registries are asked without one", "name a registry that answers "+
			"without a login, or an https:// repository")
	}
}

// KindImage refuses a management cluster that Cluster API cannot be managed from.
func (v *Findings) KindImage(c Config) {
	is := kindVersion(c.KindNodeImage)
	if is == "" {
		v.add("kindNodeImage", c.KindNodeImage, "does not name a Kubernetes version", "write it like kindest/node:v1.33.7, "+
			"best with the @sha256: digest of kind's release notes")
		return
	}
	if _, err := c.Table().ManagedFrom(c.CAPIVersion, is); err != nil {
		v.addPair("kindNodeImage", "capiVersion", c.KindNodeImage, "does not go with capiVersion "+c.CAPIVersion+" ("+
			err.Error()+")", "choose a newer node image")
	}
}

func (v *Findings) timeouts(c Config) {
	for _, variable := range Variables() {
		d, ok := variable.Pointer(&c).(*Duration)
		switch {
		case !ok, d.D() == 0 && variable.Field == "bootstrapTimeout": // that one is no wait
		default:
			v.timeout(variable.Field, *d)
		}
	}
}

func (v *Findings) timeout(field string, d Duration) {
	switch {
	case d <= 0:
		v.add(field, d, "is not a time to wait", "write it as 90s, 25m or 1h30m")
	case d.D() > maxTimeout:
		v.add(field, d, fmt.Sprintf("is longer than %s", Duration(maxTimeout)), "nothing here takes days; write it as 90s, "+
			"25m or 1h30m")
	}
}

// allowAuto means, in FIREWALL_ALLOW, the address that this machine has towards the internet.
const allowAuto = "auto"

// Allowed parses FIREWALL_ALLOW. auto reports whether the operator's own address is asked for.
func (c Config) Allowed() (extra []netip.Prefix, auto bool, err error) {
	for _, word := range Listed(c.FirewallAllow) {
		if word == allowAuto {
			auto = true
			continue
		}
		p, err := netip.ParsePrefix(word)
		if err != nil || p != p.Masked() {
			return nil, false, fmt.Errorf("%q is neither %s nor a range like 203.0.113.7/32", word, allowAuto)
		}
		extra = append(extra, p)
	}
	return extra, auto, nil
}

// Architectures are those that the image is wanted for, the servers' first.
func (c Config) Architectures(servers string) []string {
	wanted := []string{servers}
	for _, a := range Listed(c.ImageArchitectures) {
		if !slices.Contains(wanted, a) {
			wanted = append(wanted, a)
		}
	}
	return wanted
}

// Listed splits "a, b" into its words.
func Listed(text string) []string {
	return strings.FieldsFunc(text, func(r rune) bool { return r == ',' || r == ' ' })
}
