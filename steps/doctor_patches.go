package steps

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/siderolabs/crypto/x509"
	"github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/configpatcher"
	"github.com/siderolabs/talos/pkg/machinery/config/generate"
	"github.com/siderolabs/talos/pkg/machinery/config/generate/secrets"
	"github.com/siderolabs/talos/pkg/machinery/config/machine"
	"github.com/siderolabs/talos/pkg/machinery/gendata"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// patches reads the control plane's patches as strictly as Talos does, and looks for the traps of its versions.
func (d *Doctor) patches(context.Context) Finding {
	r, err := d.b.render(d.b.manifestVariables("image", "eu-central", "192.0.2.1"))
	if err != nil {
		return failed("see the check manifests", "%v", err)
	}
	total := 0
	for _, o := range r.now {
		if o.GroupVersionKind() != talosControlPlaneKind {
			continue
		}
		where := d.b.sources.cluster.name + ": TalosControlPlane " + o.GetName()
		path := []string{"spec", "controlPlaneConfig", "controlplane"}
		if jsonPatches, _, _ := unstructured.NestedSlice(o.Object, append(path, "configPatches")...); len(jsonPatches) > 0 {
			return failed("write them as strategicPatches", "%s has configPatches: JSON patches do not work on a configuration of several documents, as Talos 1.12's is", where)
		}
		if generate := text(o, append(path, "generateType")...); generate != "controlplane" {
			return failed("write generateType: controlplane", "%s has generateType %q: with another the provider makes no control plane of it, or bootstraps etcd by itself", where, generate)
		}
		if source := text(o, append(path, "hostname", "source")...); source != "" {
			return failed("leave hostname away", "%s has hostname.source %s: the node must be called like its server, which Talos learns from Hetzner", where, source)
		}
		patches, _, err := unstructured.NestedStringSlice(o.Object, append(path, "strategicPatches")...)
		if err != nil {
			return failed("write each patch as a text", "%s: %v", where, err)
		}
		merged, loaded := map[string]any{}, make([]configpatcher.Patch, len(patches))
		for i, patch := range patches {
			if loaded[i], err = strict(patch); err != nil {
				return failed("correct the patch", "%s: strategicPatches[%d]: %v", where, i, err)
			}
			var content map[string]any
			if yaml.Unmarshal([]byte(patch), &content) == nil {
				overlay(merged, content)
			}
			total++
		}
		if f := trap(where, merged); f != nil {
			return *f
		}
		if err := d.whole(loaded); err != nil {
			return failed("correct the patches", "%s: Talos would refuse the configuration that they make: %v", where, err)
		}
	}
	if minor(d.b.cfg.TalosVersion) != minor(gendata.VersionTag) {
		return unknown("read Talos's notes of changes between the two", "%d patches fit the machinery of Talos %s, which is inside this command; whether they fit %s is not known", total, gendata.VersionTag, d.b.cfg.TalosVersion)
	}
	return ok("Talos's own machinery takes %d patches, and the whole configuration that they make", total)
}

// minor is "v1.12" of "v1.12.2".
func minor(version string) string { return version[:max(0, strings.LastIndex(version, "."))] }

// whole makes the configuration of a control plane server as the provider would, without any secret, patches it and has Talos
// judge it.
func (d *Doctor) whole(patches []configpatcher.Patch) error {
	contract, err := config.ParseContractFromVersion(d.b.cfg.TalosVersion)
	if err != nil {
		return err
	}
	pair := &x509.PEMEncodedCertificateAndKey{Crt: []byte("none"), Key: []byte("none")}
	in, err := generate.NewInput(d.b.cfg.ClusterName, "https://192.0.2.1:6443", strings.TrimPrefix(d.b.cfg.KubernetesVersion, "v"),
		generate.WithVersionContract(contract), generate.WithSecretsBundle(&secrets.Bundle{
			Clock:      secrets.NewClock(),
			Cluster:    &secrets.Cluster{ID: "none", Secret: "none"},
			Secrets:    &secrets.Secrets{BootstrapToken: "none.none", SecretboxEncryptionSecret: "none"},
			TrustdInfo: &secrets.TrustdInfo{Token: "none"},
			Certs:      &secrets.Certs{Etcd: pair, K8s: pair, K8sAggregator: pair, OS: pair, K8sServiceAccount: &x509.PEMEncodedKey{Key: []byte("none")}},
		}))
	if err != nil {
		return err
	}
	plain, err := in.Config(machine.TypeControlPlane)
	if err != nil {
		return err
	}
	patched, err := configpatcher.Apply(configpatcher.WithConfig(plain), patches)
	if err != nil {
		return err
	}
	made, err := patched.Config()
	if err != nil {
		return err
	}
	if _, err = made.Validate(cloudMode{}); err != nil {
		return errors.New(strings.Join(strings.Fields(err.Error()), " ")) // it is a tree over several lines
	}
	return nil
}

// cloudMode is how Talos runs at Hetzner: from a snapshot, nothing is installed.
type cloudMode struct{}

func (cloudMode) String() string        { return "cloud" }
func (cloudMode) RequiresInstall() bool { return false }
func (cloudMode) InContainer() bool     { return false }

// strict reads a patch as Talos does: unknown keys are an error, and so is a JSON patch.
func strict(patch string) (configpatcher.Patch, error) {
	loaded, err := configpatcher.LoadPatch([]byte(patch))
	if err != nil {
		return nil, err
	}
	if _, strategic := loaded.(configpatcher.StrategicMergePatch); !strategic {
		return nil, errors.New("it is a JSON patch (RFC 6902), which does not work on a configuration of several documents")
	}
	return loaded, nil
}

// overlay puts one tree over another, lists as a whole.
func overlay(into, from map[string]any) {
	for key, value := range from {
		child, isMap := value.(map[string]any)
		existing, wasMap := into[key].(map[string]any)
		if isMap && wasMap {
			overlay(existing, child)
			continue
		}
		into[key] = value
	}
}

// wants are values that the rest of the bootstrap counts on.
type want struct {
	path []string
	is   string
	why  string
}

// trap is the first value of the merged patches that the rest of the bootstrap cannot live with.
func trap(where string, merged map[string]any) *Finding {
	return unmet(where, merged, []want{
		{[]string{"cluster", "network", "cni", "name"}, "none", "Cilium is installed in place of Talos's own network"},
		{[]string{"cluster", "proxy", "disabled"}, "true", "Cilium takes kube-proxy's place"},
		{[]string{"cluster", "externalCloudProvider", "enabled"}, "true", "the Hetzner CCM names the nodes' servers"},
		{[]string{"machine", "features", "kubernetesTalosAPIAccess", "enabled"}, "true", "the Talos CCM asks the Talos API"},
		{[]string{"machine", "kubelet", "extraArgs", "rotate-server-certificates"}, "true", "the Talos CCM approves the kubelets' certificates"},
	})
}

// unmet is the finding of the first value that is not as it is wanted; nil: all are.
func unmet(where string, values map[string]any, wants []want) *Finding {
	for _, w := range wants {
		got, found, err := unstructured.NestedFieldNoCopy(values, w.path...)
		if is := fmt.Sprint(got); err != nil || !found || is != w.is {
			if !found {
				is = "missing"
			}
			f := failed("write "+strings.Join(w.path, ".")+": "+w.is, "%s: %s is %s, not %s: %s", where, strings.Join(w.path, "."), is, w.is, w.why)
			return &f
		}
	}
	return nil
}
