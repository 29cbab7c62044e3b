package test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/registry"
	"helm.sh/helm/v3/pkg/repo"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterctl "sigs.k8s.io/cluster-api/cmd/clusterctl/client/config"
	"sigs.k8s.io/yaml"

	"github.com/slipway-k8s/slipway/config"
)

// releasedProgram is a program that the lab has a stand-in for: the test serves the stand-in in an image of the project's
// name, installed by a manifest or chart with a mark.
type releasedProgram struct{ image, command string }

func releasedPrograms() []releasedProgram {
	c := config.Defaults()
	return []releasedProgram{
		{"syself/caph:" + c.CAPHVersion, "caph"},
		{"jetstack/cert-manager-controller:" + certManagerServed, "cert-manager"},
		{"hetznercloud/hcloud-cloud-controller-manager:v" + c.HCloudCCMVersion, "hcloud-ccm"},
		{"siderolabs/talos-cloud-controller-manager:v1.12.0", "talos-ccm"},
	}
}

const (
	certManagerServed = clusterctl.CertManagerDefaultVersion
	servedMark        = "slipway.test/served"
)

// serveReleases serves releases at their projects' own addresses, through a proxy. It returns what the command's
// environment needs for that.
func serveReleases(t *testing.T, registryHost string, images http.Handler, count func()) []string {
	t.Helper()
	pushReleased(t, registryHost)
	files := map[string][]byte{}
	serveManifests(t, files)
	serveCharts(t, files, registryHost)
	origin := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		count()
		if data := files[r.Host+r.URL.Path]; data != nil {
			_, _ = w.Write(data)
		} else if r.Host == "ghcr.io" {
			images.ServeHTTP(w, r)
		} else {
			http.NotFound(w, r)
		}
	}))
	names := []string{"github.com", "charts.hetzner.cloud", "ghcr.io"}
	authority, certificate := selfSigned(t, names)
	origin.TLS = &tls.Config{Certificates: []tls.Certificate{certificate}}
	origin.StartTLS()
	t.Cleanup(origin.Close)
	proxy := httptest.NewServer(connectProxy(names, origin.Listener.Addr().String()))
	t.Cleanup(proxy.Close)
	return []string{"HTTPS_PROXY=" + proxy.URL, "SSL_CERT_FILE=" + authority}
}

// connectProxy connects those who ask for one of the names with an address, and no others.
func connectProxy(names []string, address string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		known := false
		for _, name := range names {
			known = known || r.Host == name+":443"
		}
		if r.Method != http.MethodConnect || !known {
			http.Error(w, "not served by the test", http.StatusBadGateway)
			return
		}
		to, err := net.Dial("tcp", address)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
		defer to.Close()
		from, _, err := w.(http.Hijacker).Hijack()
		if err != nil {
			return
		}
		defer from.Close()
		if _, err := io.WriteString(from, "HTTP/1.1 200 OK\r\n\r\n"); err != nil {
			return
		}
		go func() {
			_, _ = io.Copy(to, from)
			to.Close()
		}()
		_, _ = io.Copy(from, to)
	})
}

// selfSigned makes a certificate for names, and writes it into a file.
func selfSigned(t *testing.T, names []string) (file string, certificate tls.Certificate) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "releases"}, DNSNames: names,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour), IsCA: true,
		BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	file = filepath.Join(t.TempDir(), "ca.crt")
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return file, tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// pushReleased makes the images of the released programs out of the lab's own program.
func pushReleased(t *testing.T, host string) {
	t.Helper()
	bin := t.TempDir()
	build := exec.Command("go", "build", "-buildvcs=false", "-o", filepath.Join(bin, "lab"), "./cmd/lab")
	build.Dir = "../lab"
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the lab: %v\n%s", err, out)
	}
	base := inImage{file: "lab", path: "manager"}.make(t, bin)
	configuration, err := base.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range releasedPrograms() {
		configuration := configuration.DeepCopy()
		configuration.Config.Entrypoint = []string{"/manager", p.command}
		image, err := mutate.ConfigFile(base, configuration)
		if err != nil {
			t.Fatal(err)
		}
		ref, err := name.ParseReference(host + "/" + p.image)
		if err == nil {
			err = remote.Write(ref, image)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// released is a stand-in's manifest as a release, with the mark.
func released(t *testing.T, version string, paths ...string) []byte {
	t.Helper()
	var documents [][]byte
	for _, path := range paths {
		data, err := os.ReadFile(filepath.Join("../lab/repository", path))
		if err != nil {
			t.Fatal(err)
		}
		documents = append(documents, data)
	}
	all := bytes.Join(documents, []byte("---\n"))
	all = bytes.ReplaceAll(all, []byte(":VERSION"), []byte(":"+version))
	marked := bytes.ReplaceAll(all, []byte("slipway/stand-in"), []byte(servedMark))
	if bytes.Equal(marked, all) {
		t.Fatalf("%v are not marked as stand-ins", paths)
	}
	return marked
}

func serveManifests(t *testing.T, files map[string][]byte) {
	t.Helper()
	version := config.Defaults().CAPHVersion
	caph := "github.com/syself/cluster-api-provider-hetzner/releases/download/" + version + "/"
	files[caph+"infrastructure-components.yaml"] = released(t, version, "caph/hetznerclusters.yaml",
		"caph/hcloudmachines.yaml", "caph/hcloudmachinetemplates.yaml", "caph/hcloudremediations.yaml",
		"caph/hcloudremediationtemplates.yaml", "caph/manager.yaml")
	metadata, err := os.ReadFile("../lab/repository/caph/metadata.yaml")
	if err != nil {
		t.Fatal(err)
	}
	files[caph+"metadata.yaml"] = metadata
	files["github.com/cert-manager/cert-manager/releases/download/"+certManagerServed+"/cert-manager.yaml"] =
		released(t, certManagerServed, "certmanager/cert-manager.yaml")
}

// serveCharts serves hcloud-ccm's chart in a repository and talos-ccm's in a registry. Each makes a ConfigMap, too.
func serveCharts(t *testing.T, files map[string][]byte, registryHost string) {
	t.Helper()
	pack := func(name, version, appVersion string) (*chart.Chart, []byte) {
		c, err := loader.LoadDir("../lab/repository/charts/" + name)
		if err != nil {
			t.Fatal(err)
		}
		c.Metadata.Annotations, c.Metadata.Version, c.Metadata.AppVersion = nil, version, appVersion
		c.Templates = append(c.Templates, &chart.File{Name: "templates/served.yaml", Data: fmt.Appendf(nil,
			"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: served-%s, namespace: kube-system}\n", name)})
		path, err := chartutil.Save(c, t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		archive, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return c, archive
	}
	cfg := config.Defaults()
	c, archive := pack("hcloud-cloud-controller-manager", cfg.HCloudCCMVersion, "v"+cfg.HCloudCCMVersion)
	index := repo.NewIndexFile()
	if err := index.MustAdd(c.Metadata, "hccm.tgz", "", fmt.Sprintf("%x", sha256.Sum256(archive))); err != nil {
		t.Fatal(err)
	}
	data, err := yaml.Marshal(index)
	if err != nil {
		t.Fatal(err)
	}
	files["charts.hetzner.cloud/index.yaml"], files["charts.hetzner.cloud/hccm.tgz"] = data, archive

	c, archive = pack("talos-cloud-controller-manager", cfg.TalosCCMVersion, "v1.12.0")
	client, err := registry.NewClient(registry.ClientOptPlainHTTP(), registry.ClientOptWriter(io.Discard),
		registry.ClientOptCredentialsFile(filepath.Join(t.TempDir(), "registry.json")))
	if err == nil {
		_, err = client.Push(archive, fmt.Sprintf("%s/siderolabs/charts/%s:%s", registryHost, c.Name(), c.Metadata.Version))
	}
	if err != nil {
		t.Fatal(err)
	}
}

// theReleasesRun holds what the lab says of the released programs against what runs and what is installed.
func theReleasesRun(t *testing.T, c *command) {
	t.Helper()
	var status struct {
		labStatus
		Parts []struct{ Name, Fidelity, Detail string }
	}
	c.labGet("/v1/status", &status)
	parts := map[string]string{}
	for _, p := range status.Parts {
		parts[p.Name] = p.Fidelity + " " + p.Detail
	}
	if strings.HasPrefix(parts["Pods"], "simulated") { // this machine refuses namespaces
		if !strings.HasPrefix(parts["caph"], "stand-in") || !strings.Contains(parts["caph"], "needs a network of its own") {
			t.Errorf("without namespaces CAPH is %s", parts["caph"])
		}
		return
	}
	for _, p := range releasedPrograms() {
		image, tag, _ := strings.Cut(p.image, ":")
		if got := parts[filepath.Base(image)]; !strings.HasPrefix(got, "real ") || !strings.Contains(got, image+":"+tag+"@sha256:") {
			t.Errorf("lab status says of %s: %q", p.image, got)
		}
		eventually(t, "a process of the image "+p.image, time.Minute, func(context.Context) string {
			c.labGet("/v1/status", &status)
			for _, process := range status.Processes {
				target, _ := os.Readlink(fmt.Sprintf("/proc/%d/exe", process.PID))
				if strings.Contains(target, "/slipway/lab-originals/") && filepath.Base(target) == filepath.Base(image) {
					return ""
				}
			}
			return fmt.Sprintf("it is none of %d", len(status.Processes))
		})
	}
	for part, want := range map[string]string{
		"CAPH manifest":         "https://github.com/syself/cluster-api-provider-hetzner/releases/download/",
		"cert-manager manifest": "https://github.com/cert-manager/cert-manager/releases/download/",
		"hcloud-ccm chart":      "https://charts.hetzner.cloud", "talos-ccm chart": "oci://ghcr.io/siderolabs/charts",
	} {
		if got := parts[part]; !strings.HasPrefix(got, "real ") || !strings.Contains(got, want) {
			t.Errorf("lab status says of the %s: %q, want %s", part, got, want)
		}
	}
}

// theReleasesAreInstalled finds the marks of what the test serves in the clusters.
func theReleasesAreInstalled(t *testing.T, c *command) {
	t.Helper()
	management := clientOf(t, filepath.Join(c.state, "management.kubeconfig"))
	for namespace, deployment := range map[string]string{"caph-system": "caph-controller-manager",
		"cert-manager": "cert-manager"} {
		d, err := management.AppsV1().Deployments(namespace).Get(t.Context(), deployment, metav1.GetOptions{})
		if err != nil || d.Annotations[servedMark] == "" {
			t.Errorf("%s was not installed by the manifest that was served: %v", deployment, err)
		}
	}
	workload := clientOf(t, filepath.Join(c.state, "kubeconfig"))
	for _, chart := range []string{"hcloud-cloud-controller-manager", "talos-cloud-controller-manager"} {
		if _, err := workload.CoreV1().ConfigMaps("kube-system").Get(t.Context(), "served-"+chart, metav1.GetOptions{}); err != nil {
			t.Errorf("%s was not installed by the chart that was served: %v", chart, err)
		}
	}
}
