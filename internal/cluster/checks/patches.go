package checks

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/siderolabs/crypto/x509"
	machineconfig "github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/configpatcher"
	"github.com/siderolabs/talos/pkg/machinery/config/generate"
	"github.com/siderolabs/talos/pkg/machinery/config/generate/secrets"
	"github.com/siderolabs/talos/pkg/machinery/config/machine"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/internal/client/kube"
	"github.com/slipway-k8s/slipway/internal/cluster/capi"
	"github.com/slipway-k8s/slipway/internal/cluster/render"
)

// controlPlaneSpec is the TalosConfigSpec of a TalosControlPlane.
const controlPlaneSpec = "spec.controlPlaneConfig.controlplane"

// strategicPatches is the field of a TalosConfigSpec with the patches.
const strategicPatches = "strategicPatches"

// infrastructureName is the source of a node's name that is its server's: CAPH calls the server as the HCloudMachine.
const infrastructureName = "InfrastructureName"

// patched is an object with a TalosConfigSpec, and what that has to be.
type patched struct {
	object *unstructured.Unstructured
	path   string // of the TalosConfigSpec
	kind   machine.Type
}

// field are the names by which a field of the TalosConfigSpec is reached.
func (p patched) field(names ...string) []string { return append(strings.Split(p.path, "."), names...) }

func (p patched) text(names ...string) string { return capi.Text(p.object, p.field(names...)...) }

// Patches are the texts of its patches.
func (p patched) Patches() ([]string, error) {
	patches, _, err := unstructured.NestedStringSlice(p.object.Object, p.field(strategicPatches)...)
	return patches, err
}

// Patched are the objects whose patches the bootstrap provider makes machine configurations from.
func Patched(objects []*unstructured.Unstructured) (found []patched) {
	for _, o := range objects {
		switch o.GroupVersionKind() {
		case capi.TalosControlPlaneKind:
			found = append(found, patched{o, controlPlaneSpec, machine.TypeControlPlane})
		case capi.TalosConfigTemplateKind:
			found = append(found, patched{o, "spec.template.spec", machine.TypeWorker})
		}
	}
	return found
}

// Patches reads the patches of the control plane and of the workers as strictly as Talos does, and looks for the traps
// of its versions.
func Patches(cfg config.Config, sources render.Sources, objects []*unstructured.Unstructured) (found []FileError) {
	for _, p := range Patched(objects) {
		found = append(found, checkPatched(cfg, sources, p)...)
	}
	return found
}

func checkPatched(cfg config.Config, sources render.Sources, p patched) []FileError {
	at := func(field, hint, format string, args ...any) []FileError {
		e := where(sources, p.object, p.path+"."+field)
		e.Check, e.Problem, e.Hint = "patches", fmt.Sprintf(format, args...), hint
		return []FileError{e}
	}
	jsonPatches, _, _ := unstructured.NestedSlice(p.object.Object, p.field("configPatches")...)
	switch is := p.text("generateType"); {
	case len(jsonPatches) > 0:
		return at("configPatches", "write them as strategicPatches", "configPatches: JSON patches do not work on a "+
			"configuration of several documents, as Talos 1.12's is")
	case p.kind == machine.TypeControlPlane && is != "controlplane":
		return at("generateType", "write generateType: controlplane", "generateType is %q: with another the provider creates "+
			"no control plane from it, or bootstraps etcd by itself", is)
	case p.kind == machine.TypeWorker && is == "none":
		return nil // a configuration of the user's own, which is not generated
	case p.kind == machine.TypeWorker && is != "worker":
		return at("generateType", "write generateType: worker", "generateType is %q: only the TalosControlPlane creates "+
			"servers of the control plane", is)
	}
	if is := p.text("hostname", "source"); is != "" && is != infrastructureName {
		return at("hostname.source", "leave hostname away", "hostname.source is %s: the node must be called like its server, "+
			"as the HCloudMachine is", is)
	}
	if own := p.text("talosVersion"); own != "" {
		if problem := unfitContract(own, cfg.TalosVersion); problem != "" {
			return at("talosVersion", "write talosVersion: ${TALOS_VERSION}", "%s", problem)
		}
	}
	patches, err := p.Patches()
	if err != nil {
		return at(strategicPatches, "write each patch as a text", "%v", err)
	}
	return checkTexts(cfg, sources, p, patches, at)
}

// unfitContract is what is wrong with the version of Talos that configurations are written for; empty: nothing.
func unfitContract(own, talos string) string {
	contract, err := machineconfig.ParseContractFromVersion(own)
	if err != nil {
		return fmt.Sprintf("talosVersion is %q, which is not a version", own)
	}
	if runs, err := machineconfig.ParseContractFromVersion(talos); err == nil && contract.Greater(runs) {
		return fmt.Sprintf("talosVersion is %s, and the servers' image has Talos %s, which would not read all of a "+
			"configuration for a newer one", own, talos)
	}
	return ""
}

// checkTexts checks the patches one by one, and the whole configuration that they make.
func checkTexts(cfg config.Config, sources render.Sources, p patched, patches []string,
	at func(field, hint, format string, args ...any) []FileError) (found []FileError) {
	// add says what is wrong in a line of a patch; of none of them where i is below 0.
	add := func(i, line int, hint, problem string) {
		e := at(strategicPatches, hint, "%s", problem)[0]
		if i >= 0 {
			field := fmt.Sprintf("%s[%d]", strategicPatches, i)
			e.Object += ": " + field
			node := nodeIn(sourceOf(sources, p.object), sources.Vars, p.object, p.path+"."+field)
			switch { // what is not in the file was added to it
			case node != nil:
				e.Line = node.Line + line
			case ofPool(p.object):
				e.File, e.Line = "patches of worker pool "+p.object.GetLabels()[capi.WorkerPoolLabel]+" in the configuration", 0
			default: // the one for an OpenID Connect issuer
				e.File, e.Line = sources.OidcPatch.Name, line
			}
		}
		found = append(found, e)
	}
	var loaded []configpatcher.Patch
	for i, patch := range patches {
		one, err := strict(patch)
		if err != nil {
			add(i, lineOfPatchError(patch, err), "correct the patch", describePatchError(err))
		}
		loaded = append(loaded, one)
	}
	if len(found) > 0 {
		return found
	}
	m, err := p.whole(cfg, loaded, madeUpIdentity())
	if err != nil {
		i, line, hint := -1, 0, "correct the patches"
		if strings.Contains(err.Error(), "hostname") {
			hint = hostnameHint
			i, line = ownHostname(patches)
		}
		add(i, line, hint, "Talos would refuse the configuration that they result in: "+err.Error())
		return found
	}
	for _, u := range m.unfit(cfg, sources) {
		i, line := u.writtenIn(patches)
		add(i, line, u.hint, u.problem)
	}
	return found
}

// Identity is what machine configurations have of the cluster that they are of.
type Identity struct {
	Secrets  *secrets.Bundle
	Endpoint string // URL of the Kubernetes API
}

// madeUpIdentity is that of no cluster, without any secret.
func madeUpIdentity() Identity {
	pair := &x509.PEMEncodedCertificateAndKey{Crt: []byte("none"), Key: []byte("none")}
	return Identity{Endpoint: madeUpEndpoint, Secrets: &secrets.Bundle{
		Clock:      secrets.NewClock(),
		Cluster:    &secrets.Cluster{ID: "none", Secret: "none"},
		Secrets:    &secrets.Secrets{BootstrapToken: "none.none", SecretboxEncryptionSecret: "none"},
		TrustdInfo: &secrets.TrustdInfo{Token: "none"},
		Certs: &secrets.Certs{Etcd: pair, K8s: pair, K8sAggregator: pair, OS: pair,
			K8sServiceAccount: &x509.PEMEncodedKey{Key: []byte("none")}},
	}}
}

// MachineConfig is the machine configuration that the bootstrap provider makes for the servers of a TalosControlPlane,
// with made-up secrets.
func MachineConfig(cfg config.Config, tcp *unstructured.Unstructured) (machineconfig.Provider, error) {
	return MachineConfigOf(cfg, tcp, madeUpIdentity())
}

// MachineConfigOf is the machine configuration that the bootstrap provider makes for the servers of a TalosControlPlane
// or a TalosConfigTemplate.
func MachineConfigOf(cfg config.Config, o *unstructured.Unstructured, of Identity) (machineconfig.Provider, error) {
	failed := func(err error) error {
		return fmt.Errorf("make the machine configuration of %s: %w", kube.Describe(o), err)
	}
	p := Patched([]*unstructured.Unstructured{o})[0]
	patches, err := p.loaded()
	if err != nil {
		return nil, failed(err)
	}
	m, err := p.whole(cfg, patches, of)
	if err != nil {
		return nil, failed(err)
	}
	return m.Provider, nil
}

// loaded are the object's patches, as Talos reads them.
func (p patched) loaded() (loaded []configpatcher.Patch, err error) {
	patches, err := p.Patches()
	if err != nil {
		return nil, err
	}
	for _, patch := range patches {
		one, err := strict(patch)
		if err != nil {
			return nil, err
		}
		loaded = append(loaded, one)
	}
	return loaded, nil
}

// merged is the machine configuration that the object's patches result in.
func (p patched) merged(cfg config.Config) (machineConfiguration, error) {
	patches, err := p.loaded()
	if err != nil {
		return machineConfiguration{}, err
	}
	return p.whole(cfg, patches, madeUpIdentity())
}

// whole makes the configuration of a server as the provider would, patches it and has Talos judge it.
func (p patched) whole(cfg config.Config, patches []configpatcher.Patch, of Identity) (machineConfiguration, error) {
	m := machineConfiguration{kind: p.kind}
	contract, err := machineconfig.ParseContractFromVersion(cmp.Or(p.text("talosVersion"), cfg.TalosVersion))
	if err != nil {
		return m, err
	}
	in, err := generate.NewInput(cfg.ClusterName, of.Endpoint, strings.TrimPrefix(cfg.KubernetesVersion, "v"),
		generate.WithVersionContract(contract), generate.WithSecretsBundle(of.Secrets))
	if err != nil {
		return m, err
	}
	in.PodNet, in.ServiceNet = []string{cfg.PodCIDR}, []string{cfg.ServiceCIDR} // as the provider takes them from the Cluster
	plain, err := in.Config(p.kind)
	if err != nil {
		return m, err
	}
	made, err := configpatcher.Apply(configpatcher.WithConfig(plain), patches)
	if err != nil {
		return m, oneLine(err)
	}
	if m.Provider, err = made.Config(); err != nil {
		return m, oneLine(err)
	}
	if _, err = m.Validate(cloudMode{}); err != nil {
		return m, oneLine(err)
	}
	return m, nil
}

// oneLine is an error of Talos's, which may be a tree over several lines, in one, without values of the configuration.
func oneLine(err error) error {
	return errors.New(withoutValues(strings.Join(strings.Fields(err.Error()), " ")))
}

// cloudMode is how Talos runs at Hetzner: from a snapshot, nothing is installed.
type cloudMode struct{}

func (cloudMode) String() string        { return "cloud" }
func (cloudMode) RequiresInstall() bool { return false }
func (cloudMode) InContainer() bool     { return false }

// strict reads a patch as Talos does: unknown keys are an error, and so is a JSON patch.
func strict(patch string) (configpatcher.Patch, error) {
	var content any
	if err := yaml.Unmarshal([]byte(patch), &content); err == nil && content == nil {
		return nil, errors.New("it is empty, or a comment only: the bootstrap provider takes it for a JSON patch, and " +
			"makes no configuration; remove it")
	}
	loaded, err := configpatcher.LoadPatch([]byte(patch))
	if err != nil {
		return nil, err
	}
	if _, strategic := loaded.(configpatcher.StrategicMergePatch); !strategic {
		return nil, errors.New("it is a JSON patch (RFC 6902), which does not work on a configuration of several documents")
	}
	return loaded, nil
}

// unknownKeys is how Talos's decoder begins to say which keys it does not know; their tree follows, with their values.
const unknownKeys = "unknown keys found during decoding:\n"

var (
	errorLine   = regexp.MustCompile(`\bline (\d+):`)
	quotedValue = regexp.MustCompile("`[^`]*`")
)

// withoutValues leaves out what the YAML decoder quotes: a value may be a secret.
func withoutValues(message string) string { return quotedValue.ReplaceAllString(message, "`…`") }

// describePatchError is a decoder's error in one line, without any value of the patch.
func describePatchError(err error) string {
	if path := unknownKey(err); len(path) > 0 {
		return "unknown key " + strings.Join(path, ".")
	}
	message := err.Error()
	if before, _, found := strings.Cut(message, unknownKeys); found {
		return before + "it has unknown keys"
	}
	return withoutValues(strings.Join(strings.Fields(errorLine.ReplaceAllString(message, "")), " "))
}

// lineOfPatchError is the line in the patch, beginning with 1, that an error is about; 0: not known.
func lineOfPatchError(patch string, err error) int {
	if path := unknownKey(err); len(path) > 0 {
		return lineOfKey(patch, path)
	}
	if found := errorLine.FindStringSubmatch(err.Error()); found != nil {
		line, _ := strconv.Atoi(found[1])
		return line
	}
	return 0
}

// unknownKey is the path of the first key that Talos does not know. Its error has the whole tree below such a key: it
// is the shortest path that is refused without a value, too.
func unknownKey(err error) []string {
	_, tree, found := strings.Cut(err.Error(), unknownKeys)
	if !found {
		return nil
	}
	var keys map[string]any
	if yaml.Unmarshal([]byte(tree), &keys) != nil {
		return nil
	}
	path := firstPath(keys)
	for n := 1; n < len(path); n++ {
		if data, err := yaml.Marshal(nested(path[:n])); err == nil {
			if _, err := strict(string(data)); err != nil && strings.Contains(err.Error(), unknownKeys) {
				return path[:n]
			}
		}
	}
	return path
}
