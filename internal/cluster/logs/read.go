// Package logs reads and follows the logs of the controllers, in the management cluster and in the cluster itself.
package logs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-k8s/slipway/bootstrap"
	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/internal/base/usage"
	"github.com/slipway-k8s/slipway/internal/client/kube"
	"github.com/slipway-k8s/slipway/internal/cluster/capi"
	"github.com/slipway-k8s/slipway/internal/cluster/connect"
	"github.com/slipway-k8s/slipway/platform"
)

// Controller is a program in one of the clusters whose log tells what becomes of a bootstrap.
type Controller struct {
	Name string // as people ask for it: "caph"

	label     string   // clusterctl's name of a provider; empty: it is a Helm release
	namespace string   // of a provider by default, or of the release
	workloads []string // the beginnings of the names of a release's Pods
}

// Controllers are those whose logs can be asked for, in the order in which a bootstrap needs them.
func Controllers() []Controller {
	release := func(c bootstrap.Chart, more ...string) Controller {
		return Controller{Name: c.Program, namespace: c.Namespace, workloads: append([]string{c.Release}, more...)}
	}
	return []Controller{
		{Name: "capi", label: "cluster-api", namespace: "capi-system"},
		{Name: "caph", label: "infrastructure-hetzner", namespace: "caph-system"},
		{Name: "cabpt", label: "bootstrap-talos", namespace: "cabpt-system"},
		{Name: "cacppt", label: "control-plane-talos", namespace: "cacppt-system"},
		release(bootstrap.HCloudCCM()),
		release(bootstrap.TalosCCM()),
		release(bootstrap.Cilium(), "hubble"), // the network, its operator and Hubble
	}
}

// Wanted are the controllers of the names; all where there is none. The add-ons of a configuration are among them.
func Wanted(names []string, cfg config.Config) ([]Controller, error) {
	all := Controllers()
	for _, a := range cfg.InstallOrder() {
		all = append(all, Controller{Name: a.Name, namespace: a.Namespace, workloads: []string{a.Name}})
	}
	if len(names) == 0 {
		return all, nil
	}
	var wanted []Controller
	for _, name := range names {
		i := slices.IndexFunc(all, func(c Controller) bool { return c.Name == name })
		if i < 0 {
			var known []string
			for _, c := range all {
				known = append(known, c.Name)
			}
			return nil, usage.Errorf("there is no controller %q%s; there are %s",
				name, usage.DidYouMean("", name, known), strings.Join(known, ", "))
		}
		if !slices.ContainsFunc(wanted, func(c Controller) bool { return c.Name == name }) {
			wanted = append(wanted, all[i])
		}
	}
	return wanted, nil
}

// has tells whether a Pod is the controller's.
func (c Controller) has(pod *corev1.Pod) bool {
	if c.label != "" {
		return pod.Labels[capi.ProviderLabel] == c.label || pod.Namespace == c.namespace
	}
	return pod.Namespace == c.namespace && c.releases(pod.Name)
}

// releases tells whether a Pod's name is that of one of the release's.
func (c Controller) releases(pod string) bool {
	return slices.ContainsFunc(c.workloads, func(name string) bool { return strings.HasPrefix(pod, name+"-") })
}

// Line is a line of a controller's log.
type Line struct {
	kube.LogLine
	Cluster    string // "management", or the name of the cluster that is made
	Controller string
}

// Options says which logs to read.
type Options struct {
	Controllers []Controller
	Since       time.Duration // how far back; 0: as far as Lines
	Lines       int64         // of each container, the last so many; below 0: all
	Line        func(Line)    // called by many at once
	Note        func(about Line, text string)
	Secret      func(string) // hears every secret that is found beside the controllers, before any line
}

const (
	logsManagement = "management" // LogLine.Cluster of the management cluster
	// logsLookEvery is the pause between two looks for a cluster that is not there, or not any more.
	logsLookEvery = 3 * time.Second
)

// logSide is one of the two clusters, by its kubeconfig in the state folder.
type logSide struct{ name, file string }

func logSides(cfg config.Config) []logSide {
	return []logSide{{logsManagement, platform.ManagementKubeconfig}, {cfg.ClusterName, platform.Kubeconfig}}
}

// errNoSuchCluster means that the cluster does not exist, or not yet, or is the other one.
var errNoSuchCluster = errors.New("there is no such cluster")

// openLogSide connects to a cluster that answers. The management cluster that is the cluster itself is none of its own.
func openLogSide(ctx context.Context, cfg config.Config, tools platform.Tools, s logSide, w Options) (*kube.Cluster,
	error) {
	cluster, err := connect.Cluster(tools, s.file)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("%w yet: the state folder has no %s", errNoSuchCluster, s.file)
		}
		return nil, err
	}
	uid, err := cluster.UID(ctx)
	if err != nil {
		if s.name == logsManagement {
			if exists, existsErr := tools.Management.Exists(ctx, cfg.ManagementName()); existsErr == nil && !exists {
				return nil, fmt.Errorf("%w any more", errNoSuchCluster)
			}
		}
		return nil, err
	}
	if s.name == logsManagement {
		if other, err := connect.Cluster(tools, platform.Kubeconfig); err == nil {
			if same, err := other.UID(ctx); err == nil && same == uid {
				return nil, fmt.Errorf("%w: the cluster manages itself", errNoSuchCluster)
			}
		}
	}
	tellSecrets(ctx, cfg, cluster, w.Secret)
	return cluster, nil
}

// tellSecrets names the tokens that the controllers work with, as far as they can be read.
func tellSecrets(ctx context.Context, cfg config.Config, cluster *kube.Cluster, tell func(string)) {
	for _, key := range []client.ObjectKey{
		{Namespace: cfg.Namespace, Name: config.TokenSecretName}, {Namespace: bootstrap.HCloudCCM().Namespace,
			Name: config.CCMSecretName},
	} {
		secret := &corev1.Secret{}
		if err := cluster.Get(ctx, key, secret); err != nil {
			continue
		}
		for _, value := range []string{"hcloud", "token", "robot-password"} {
			if text := string(secret.Data[value]); text != "" {
				tell(text)
			}
		}
	}
}

// of are the options for the Pods of one cluster.
func (w Options) of(s logSide) kube.LogOptions {
	out := kube.LogOptions{
		Pods: func(pod *corev1.Pod) bool {
			return slices.ContainsFunc(w.Controllers, func(c Controller) bool { return c.has(pod) })
		},
		Lines: w.Lines,
		Line:  func(line kube.LogLine) { w.Line(w.line(s, line)) },
		Trouble: func(where kube.LogLine, err error) {
			w.Note(w.line(s, where), whyNoLog(err))
		},
	}
	if w.Since > 0 {
		out.After = time.Now().Add(-w.Since)
	}
	return out
}

// whyNoLog is an error without the address that was asked, which is long and says nothing.
func whyNoLog(err error) string {
	if asked := (*url.Error)(nil); errors.As(err, &asked) {
		err = asked.Err
	}
	text := err.Error()
	if strings.Contains(text, "tls: internal error") { // what kubelets answer
		text += ": the node's kubelet has no serving certificate yet, which talos-ccm approves"
	}
	return text
}

func (w Options) line(s logSide, line kube.LogLine) Line {
	out := Line{LogLine: line, Cluster: s.name}
	for _, c := range w.Controllers {
		if line.Namespace == c.namespace && (c.label != "" || c.releases(line.Pod)) {
			out.Controller = c.Name
		}
	}
	return out
}

// Read hands on what the controllers have written so far, the oldest first. It is an error that no cluster runs them.
func Read(ctx context.Context, cfg config.Config, tools platform.Tools, w Options) error {
	tools = tools.WithDefaults()
	var (
		streams []*sideStream
		reasons []string
		found   bool
	)
	defer func() {
		for _, s := range streams {
			s.Close()
		}
	}()
	for _, side := range logSides(cfg) {
		cluster, err := openLogSide(ctx, cfg, tools, side, w)
		if err == nil {
			var opened []*kube.LogStream
			opened, err = cluster.OpenLogs(ctx, w.of(side))
			for _, s := range opened {
				streams = append(streams, &sideStream{LogStream: s, side: side})
			}
			found = found || err == nil
		}
		if err != nil {
			reasons = append(reasons, side.name+" cluster: "+err.Error())
		}
	}
	if !found {
		return fmt.Errorf("no cluster answers that could run controllers: %s", strings.Join(reasons, "; "))
	}
	return mergeLogs(streams, w)
}

// sideStream is a log with its next line.
type sideStream struct {
	*kube.LogStream
	side logSide
	next kube.LogLine
}

// mergeLogs hands on the lines of several logs in the order of their times.
func mergeLogs(streams []*sideStream, w Options) error {
	streams = slices.Clone(streams)
	advance := func(i int) error {
		line, err := streams[i].Next()
		if err == io.EOF {
			streams = slices.Delete(streams, i, i+1)
			return nil
		}
		streams[i].next = line
		return err
	}
	for i := len(streams) - 1; i >= 0; i-- {
		if err := advance(i); err != nil {
			return fmt.Errorf("read a log: %w", err)
		}
	}
	for len(streams) > 0 {
		first := 0
		for i, s := range streams {
			if s.next.Time.Before(streams[first].next.Time) {
				first = i
			}
		}
		w.Line(w.line(streams[first].side, streams[first].next))
		if err := advance(first); err != nil {
			return fmt.Errorf("read a log: %w", err)
		}
	}
	return nil
}
