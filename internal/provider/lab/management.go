package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/flow"
)

// LocalManagement is the daemon that runs management clusters of real launches on this machine, without the rest of a
// lab: the command manage of the lab's program.
type LocalManagement struct {
	Dir         string
	Programs    Programs
	WorkDir     string
	Environment map[string]string
	// Rehearsal is the lab whose Hetzner is used, with its info; nil: the real one.
	Rehearsal     *Lab
	RehearsalInfo Info
}

// localName is what errors call the daemon.
const localName = "the local management cluster"

// NewLocalClient returns a client of the daemon in a folder. It makes no request.
func NewLocalClient(dir string) *Client { return newClient(dir, localName) }

// Daemon is its process, with a client. HTTPS_PROXY and NO_PROXY are its way out.
func (m *LocalManagement) Daemon(client *Client) Daemon {
	environment := daemonEnvironment(m.Environment)
	proxies := map[string]string{}
	for _, name := range []string{"HTTPS_PROXY", "NO_PROXY"} {
		for _, spelling := range []string{name, strings.ToLower(name)} {
			if value := m.Environment[spelling]; value != "" && proxies[name] == "" {
				proxies[name] = value
			}
		}
	}
	if m.Rehearsal != nil {
		proxies = map[string]string{"HTTPS_PROXY": m.RehearsalInfo.Proxy}
	}
	for name, value := range proxies {
		environment = append(environment, name+"="+value)
	}
	return Daemon{Name: localName, Dir: m.Dir, LogFile: filepath.Join(m.Dir, "daemon.log"), Client: client,
		Environment: environment}
}

// Up makes sure that the daemon is up. Programs that are not there are fetched out of their images, those of a
// rehearsal are the lab's.
func (m *LocalManagement) Up(ctx context.Context, d Daemon, say flow.Say) error {
	if _, err := d.Answering(ctx); err == nil || !errors.Is(err, ErrDown) {
		return err
	}
	program := filepath.Join(m.Dir, daemonFile)
	if err := os.MkdirAll(filepath.Dir(program), 0o700); err != nil {
		return fmt.Errorf("create the folder of the management cluster: %w", err)
	}
	unlock, err := waitForLock(ctx, filepath.Join(m.Dir, "start.lock"), "starting the management cluster", say)
	if err != nil {
		return err
	}
	defer unlock()
	if _, err := d.Answering(ctx); err == nil || !errors.Is(err, ErrDown) {
		return err // started by whom we waited for
	}
	args, err := m.prepare(ctx, program, say)
	if err != nil {
		return err
	}
	_, err = d.Start(ctx, program, args, say)
	return err
}

// builder makes the programs of the daemon: those of a rehearsal are the lab's.
func (m *LocalManagement) builder() (*builder, error) {
	if m.Rehearsal != nil {
		return newBuilder(m.Rehearsal)
	}
	return newBuilder(&Lab{Dir: m.Dir, Programs: m.Programs, WorkDir: m.WorkDir, Environment: m.Environment})
}

// config is the configuration that decides what the daemon runs.
func (m *LocalManagement) config() config.Config {
	if m.Rehearsal != nil {
		return m.Rehearsal.Programs.Config
	}
	return m.Programs.Config
}

// Clusters makes the daemon's clusters.
func (m *LocalManagement) Clusters(client *Client) Management {
	return Management{Client: client, Kubernetes: m.config().KubernetesVersion}
}

// ProvideCore makes sure that the daemon, which is up, has the program of the configured core, as for an upgrade.
func (m *LocalManagement) ProvideCore(ctx context.Context, client *Client, say flow.Say) error {
	k := Core()
	version := k.configured(m.config())
	info, err := client.Info(ctx)
	if err != nil || version == "" || len(k.in(info)) == 0 { // one of an older release has one core
		return err
	}
	b, err := m.builder()
	if err != nil {
		return err
	}
	fromImages := m.Rehearsal == nil || b.mode() == config.LabProgramsImages
	if runs, ok := runs(k.in(info), version); ok && (runs == version || !fromImages) {
		return nil
	}
	set, err := b.setFor(ctx, k, version, fromImages, say)
	if err != nil {
		return err
	}
	return b.give(ctx, client, set, nil, say)
}

// prepare makes the daemon's program and those that it runs, and returns its arguments.
func (m *LocalManagement) prepare(ctx context.Context, program string, say flow.Say) ([]string, error) {
	b, err := m.builder()
	if err != nil {
		return nil, err
	}
	if l := m.Rehearsal; l != nil {
		upstream, err := b.programs(ctx, say)
		if err != nil {
			return nil, err
		}
		sets, err := b.allSetsToRun(ctx, upstream, say)
		if err != nil {
			return nil, err
		}
		args := []string{"manage", "--dir", m.Dir, "--bin", upstream, "--stand-ins", "--latency", l.Latency,
			"--ca", m.RehearsalInfo.CAFile, "--until-gone", fmt.Sprint(m.RehearsalInfo.PID)}
		args = append(args, setArguments(sets)...)
		if record := l.recordOf(); record != "" { // what the lab's manifests and charts are of
			args = append(args, "--originals", record)
		}
		return args, b.daemon(ctx, program, say)
	}
	if runtime.GOOS != "linux" {
		return nil, errNotLinux
	}
	upstream, err := b.sets.fetch(ctx, say)
	if err != nil {
		return nil, err
	}
	wanted := filepath.Join(m.Dir, "programs.yaml")
	if err := writeMapping(wanted, managementImages(b.sets.config)); err != nil {
		return nil, err
	}
	mapping, err := b.resolveMapping(ctx, "the images of the management cluster,", wanted, say)
	if err != nil {
		return nil, err
	}
	sets, err := b.allSetsToRun(ctx, upstream, say)
	if err != nil {
		return nil, err
	}
	args := append([]string{"manage", "--dir", m.Dir, "--bin", upstream, "--images", mapping}, setArguments(sets)...)
	if ca := m.Environment["SSL_CERT_FILE"]; ca != "" { // the authority of a proxy that opens connections, for example
		args = append(args, "--ca", ca)
	}
	return args, b.daemon(ctx, program, say)
}

// mappedImage is an entry of a mapping of images to programs.
type mappedImage struct {
	Image    string `yaml:"image"`
	From     string `yaml:"from"`
	Fidelity string `yaml:"fidelity"`
}

// managementImages are the images of a management cluster whose programs are in no set: CAPH and cert-manager.
func managementImages(c config.Config) (mapping []mappedImage) {
	for _, p := range upstreamPrograms() {
		if p.file == "" && p.management {
			mapping = append(mapping, mappedImage{Image: p.image, From: p.reference(c), Fidelity: "real"})
		}
	}
	return mapping
}

func writeMapping(file string, mapping []mappedImage) error {
	data, err := yaml.Marshal(mapping)
	if err == nil {
		err = os.WriteFile(file, data, 0o600)
	}
	if err != nil {
		return fmt.Errorf("write the images of the management cluster: %w", err)
	}
	return nil
}
