package images

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"go.yaml.in/yaml/v3"
)

// AnyRegistry in place of a host configures all registries that are not named.
const AnyRegistry = "*"

// Registries are the endpoints that serve a registry's images in its place, by the host in a reference (docker.io for
// references without one). They are asked in their order; the registry itself only where it is among them.
type Registries map[string][]Endpoint

// Endpoint is an address that serves images.
type Endpoint struct {
	// URL is https://host or https://host/prefix, where the prefix goes before each repository's name. With http:// the
	// connection is not encrypted.
	URL string `yaml:"url"`
	// CAFile has the certificate authorities that the endpoint's certificate is verified with, besides the system's; PEM.
	CAFile string `yaml:"caFile"`
	// Insecure accepts any certificate.
	Insecure bool `yaml:"insecure"`
}

// LoadRegistries reads a registry.yaml:
//
//	registries:
//	  registry.k8s.io:
//	    - url: https://mirror.example.com/k8s
//	      caFile: mirror-ca.pem
//	    - url: https://registry.k8s.io
//
// A relative file is one beside it.
func LoadRegistries(file string) (Registries, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read the configuration of registries: %w", err)
	}
	var content struct {
		Registries Registries `yaml:"registries"`
	}
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	decoder.KnownFields(true)
	if err := decoder.Decode(&content); err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("configuration of registries %s: %w", file, err)
	}
	for host, endpoints := range content.Registries {
		if err := checkHost(host); err != nil {
			return nil, fmt.Errorf("configuration of registries %s: %w", file, err)
		}
		if len(endpoints) == 0 {
			return nil, fmt.Errorf("configuration of registries %s: %s has no endpoint: add one with url, or remove it",
				file, host)
		}
		for i, e := range endpoints {
			if err := e.check(); err != nil {
				return nil, fmt.Errorf("configuration of registries %s: %s, endpoint %d: %w", file, host, i+1, err)
			}
			if e.CAFile != "" && !filepath.IsAbs(e.CAFile) {
				endpoints[i].CAFile = filepath.Join(filepath.Dir(file), e.CAFile)
			}
		}
	}
	return content.Registries, nil
}

func checkHost(host string) error {
	if host == "" || host != AnyRegistry && strings.ContainsAny(host, "/*@ ") {
		return fmt.Errorf("%q is not the host of a registry: write it as in a reference, registry.k8s.io for example, or %q",
			host, AnyRegistry)
	}
	return nil
}

// check never repeats an address that has a password in it.
func (e Endpoint) check() error {
	u, err := url.Parse(e.URL)
	switch {
	case err != nil:
		return errors.New("url is not an address: write https://host or https://host/prefix")
	case u.User != nil:
		return errors.New("url holds a user name or a password: credentials are taken from Docker's configuration " +
			"(docker login)")
	case u.Scheme != "https" && u.Scheme != "http" || u.Host == "":
		return fmt.Errorf("url %q is not an address: write https://host or https://host/prefix", e.URL)
	case u.RawQuery != "" || u.Fragment != "":
		return fmt.Errorf("url %q has more than a host and a prefix", e.URL)
	case u.Scheme == "http" && (e.CAFile != "" || e.Insecure):
		return errors.New("caFile and insecure are about certificates, which http:// has none of: write https://, or " +
			"remove them")
	}
	return nil
}

// of are the endpoints that serve a registry's images.
func (r Registries) of(host string) []Endpoint {
	if host == "index.docker.io" { // how the library calls it
		host = "docker.io"
	}
	if endpoints, configured := r[host]; configured {
		return endpoints
	}
	if endpoints, configured := r[AnyRegistry]; configured {
		return endpoints
	}
	if host == "docker.io" {
		host = "index.docker.io"
	}
	return []Endpoint{{URL: "https://" + host}}
}
