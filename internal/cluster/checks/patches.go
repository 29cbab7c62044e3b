package checks

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
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
	"github.com/slipway-k8s/slipway/internal/cluster/capi"
	"github.com/slipway-k8s/slipway/internal/cluster/render"
)

const (
	checkPatchesName = "patches"
	StrategicPatches = "strategicPatches"
	// infrastructureName is the source of a node's name that is its server's: CAPH calls the server as the HCloudMachine.
	infrastructureName = "InfrastructureName"
)

// patched is an object with a TalosConfigSpec, and what that has to be.
type patched struct {
	Object *unstructured.Unstructured
	Path   []string // of the TalosConfigSpec
	kind   machine.Type
}

// Patched are the objects whose patches the bootstrap provider makes machine configurations from.
func Patched(objects []*unstructured.Unstructured) (found []patched) {
	for _, o := range objects {
		switch o.GroupVersionKind() {
		case capi.TalosControlPlaneKind:
			found = append(found,
				patched{Object: o, Path: []string{"spec", "controlPlaneConfig", "controlplane"}, kind: machine.TypeControlPlane})
		case capi.TalosConfigTemplateKind:
			found = append(found, patched{Object: o, Path: []string{"spec", "template", "spec"}, kind: machine.TypeWorker})
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
	at := func(hint, problem string, fields ...any) FileError {
		e := where(sources, p.Object, pathOf(p.Path, fields...)...)
		e.Check, e.Problem, e.Hint = checkPatchesName, problem, hint
		return e
	}
	spec := func(fields ...string) []string { return append(append([]string{}, p.Path...), fields...) }
	if jsonPatches, _, _ := unstructured.NestedSlice(p.Object.Object, spec("configPatches")...); len(jsonPatches) > 0 {
		return []FileError{at("write them as strategicPatches",
			"configPatches: JSON patches do not work on a configuration of several documents, as Talos 1.12's is",
			"configPatches")}
	}
	switch is := capi.Text(p.Object, spec("generateType")...); {
	case p.kind == machine.TypeControlPlane && is != "controlplane":
		return []FileError{at("write generateType: controlplane",
			fmt.Sprintf("generateType is %q: with another the provider creates no control plane from it, or bootstraps etcd "+
				"by itself", is), "generateType")}
	case p.kind == machine.TypeWorker && is == "none":
		return nil // a configuration of the user's own, which is not generated
	case p.kind == machine.TypeWorker && is != "worker":
		return []FileError{at("write generateType: worker",
			fmt.Sprintf("generateType is %q: only the TalosControlPlane creates servers of the control plane", is),
			"generateType")}
	}
	if is := capi.Text(p.Object, spec("hostname", "source")...); is != "" && is != infrastructureName {
		return []FileError{at("leave hostname away",
			fmt.Sprintf("hostname.source is %s: the node must be called like its server, as the HCloudMachine is", is),
			"hostname", "source")}
	}
	if own := capi.Text(p.Object, spec("talosVersion")...); own != "" {
		if problem := unfitContract(own, cfg.TalosVersion); problem != "" {
			return []FileError{at("write talosVersion: ${TALOS_VERSION}", problem, "talosVersion")}
		}
	}
	patches, _, err := unstructured.NestedStringSlice(p.Object.Object, spec(StrategicPatches)...)
	if err != nil {
		return []FileError{at("write each patch as a text", err.Error(), StrategicPatches)}
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
	at func(hint, problem string, fields ...any) FileError) (found []FileError) {
	loaded := []configpatcher.Patch{}
	place := func(i int, line func(patch string) int) FileError {
		e := at("", "", StrategicPatches, i)
		e.Object += fmt.Sprintf(": %s[%d]", StrategicPatches, i)
		node := nodeIn(sourceOf(sources, p.Object), sources.Vars, p.Object, pathOf(append(p.Path, StrategicPatches), i)...)
		switch { // what is not in the file was added to it
		case node != nil:
			e.Line = node.Line + line(patches[i])
		case ofPool(p.Object):
			e.File, e.Line = "patches of worker pool "+p.Object.GetLabels()[capi.WorkerPoolLabel]+" in the configuration", 0
		default: // the one for an OpenID Connect issuer
			e.File, e.Line = sources.OidcPatch.Name, line(patches[i])
		}
		return e
	}
	for i, patch := range patches {
		one, err := strict(patch)
		if err != nil {
			e := place(i, func(patch string) int { return lineOfPatchError(patch, err) })
			e.Hint, e.Problem = "correct the patch", describePatchError(patch, err)
			found = append(found, e)
			continue
		}
		loaded = append(loaded, one)
	}
	if len(found) > 0 {
		return found
	}
	m, err := p.whole(cfg, loaded)
	if err != nil && strings.Contains(err.Error(), "hostname") {
		e := at("", "", StrategicPatches)
		if i, line := ownHostname(patches); i >= 0 {
			e = place(i, func(string) int { return line })
		}
		e.Hint, e.Problem = hostnameHint, "Talos would refuse the configuration that they result in: "+err.Error()
		return []FileError{e}
	}
	if err != nil {
		return []FileError{at("correct the patches", "Talos would refuse the configuration that they result in: "+err.Error(),
			StrategicPatches)}
	}
	for _, u := range m.unfit(cfg, sources) {
		e := at("", "", StrategicPatches)
		if i, line := u.writtenIn(patches); i >= 0 {
			e = place(i, func(string) int { return line })
		}
		e.Hint, e.Problem = u.hint, u.problem
		found = append(found, e)
	}
	return found
}

// merged is the machine configuration that the object's patches result in.
func (p patched) merged(cfg config.Config) (machineConfiguration, error) {
	patches, _, err := unstructured.NestedStringSlice(p.Object.Object, append(slices.Clone(p.Path), StrategicPatches)...)
	if err != nil {
		return machineConfiguration{}, err
	}
	var loaded []configpatcher.Patch
	for _, patch := range patches {
		one, err := strict(patch)
		if err != nil {
			return machineConfiguration{}, err
		}
		loaded = append(loaded, one)
	}
	return p.whole(cfg, loaded)
}

func pathOf(fields []string, more ...any) []any {
	path := make([]any, 0, len(fields)+len(more))
	for _, field := range fields {
		path = append(path, field)
	}
	return append(path, more...)
}

// whole makes the configuration of a server as the provider would, without any secret, patches it and has Talos judge
// it.
func (p patched) whole(cfg config.Config, patches []configpatcher.Patch) (machineConfiguration, error) {
	m := machineConfiguration{kind: p.kind}
	version := cfg.TalosVersion
	if own := capi.Text(p.Object, append(append([]string{}, p.Path...), "talosVersion")...); own != "" {
		version = own
	}
	contract, err := machineconfig.ParseContractFromVersion(version)
	if err != nil {
		return m, err
	}
	pair := &x509.PEMEncodedCertificateAndKey{Crt: []byte("none"), Key: []byte("none")}
	in, err := generate.NewInput(cfg.ClusterName, madeUpEndpoint, strings.TrimPrefix(cfg.KubernetesVersion, "v"),
		generate.WithVersionContract(contract), generate.WithSecretsBundle(&secrets.Bundle{
			Clock:      secrets.NewClock(),
			Cluster:    &secrets.Cluster{ID: "none", Secret: "none"},
			Secrets:    &secrets.Secrets{BootstrapToken: "none.none", SecretboxEncryptionSecret: "none"},
			TrustdInfo: &secrets.TrustdInfo{Token: "none"},
			Certs: &secrets.Certs{Etcd: pair, K8s: pair, K8sAggregator: pair, OS: pair,
				K8sServiceAccount: &x509.PEMEncodedKey{Key: []byte("none")}},
		}))
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
func describePatchError(patch string, err error) string {
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
