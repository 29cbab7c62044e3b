package rotation

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/client/kube"
	"github.com/slipway-k8s/slipway/internal/client/talos"
	"github.com/slipway-k8s/slipway/internal/cluster/connect"
	"github.com/slipway-k8s/slipway/internal/cluster/etcdview"
	"github.com/slipway-k8s/slipway/internal/cluster/wait"
	"github.com/slipway-k8s/slipway/platform"
)

// finish makes certain that both APIs refuse a certificate of the old authorities, unpauses Cluster API, has the
// state folder trust the new authorities alone, and deletes the Secret of the rotation.
func (in inputs) finish(ctx context.Context, say flow.Say, made Made) (Made, error) {
	c, err := in.open(ctx, say)
	if err != nil {
		return Made{}, err
	}
	if _, err := in.readAuthorities(ctx, c.manager); kube.Absent(err) {
		// The run before this one was killed after it had deleted the Secret, as the last of all; or another state
		// folder has ended the rotation, and the files here trust the new authorities, too.
		return made, nil
	}
	a, err := in.begunWith(ctx, c.manager, made)
	if err != nil {
		return Made{}, err
	}
	if err := in.ensureSecrets(ctx, say, c.manager, a); err != nil { // one may have been written from an old cache
		return Made{}, err
	}
	if err := in.awaitRefusals(ctx, say, c, a); err != nil {
		return Made{}, err
	}
	if err := in.unpause(ctx, say, c.manager); err != nil {
		return Made{}, err
	}
	if err := in.writeFiles(a, a.talos.new.Crt, a.kubernetes.new.Crt); err != nil {
		return Made{}, err
	}
	kubeconfig, err := connect.WorkloadKubeconfig(ctx, c.manager, in.cfg.Namespace, in.cfg.ClusterName)
	if err != nil {
		return Made{}, err
	}
	if err := in.tools.Files.Write(platform.Kubeconfig, kubeconfig); err != nil { // the same as a run would write
		return Made{}, err
	}
	return made, in.removeSecret(ctx, c.manager)
}

// awaitRefusals shows certificates of the old authorities to every kube-apiserver and to the Talos of every server, and
// removes the old authority from the ConfigMap that extension API servers read.
func (in inputs) awaitRefusals(ctx context.Context, say flow.Say, c clusters, a authorities) error {
	w := wait.Wait{What: "certificates of the old authorities to be refused", Within: in.cfg.ControlPlaneTimeout.D(),
		Each: time.Minute}
	return w.Until(ctx, say, func(ctx context.Context) (string, error) {
		all, err := in.listServers(ctx, func(string, ...any) {}, c)
		if err != nil {
			return "", err
		}
		of := progress{planes: planesOf(all), done: planesOf(all)}
		if of.seen, err = in.expected(ctx, of.planes); err != nil {
			return "", err
		}
		lacks, err := in.apiLacks(ctx, c, probe{roots: a.kubernetes.new.Crt, client: a.kubernetes.oldClient}, of)
		if err != nil || lacks != "" {
			return lacks, err
		}
		if err := dropDelegated(ctx, say, c.workload, a); err != nil {
			return "", err
		}
		return in.talosRefuses(ctx, a, all)
	})
}

// talosRefuses says which servers take a client certificate of the old authority. Each is asked with one of the new
// authority, too: one that does not answer refuses nothing.
func (in inputs) talosRefuses(ctx context.Context, a authorities, all []server) (string, error) {
	file, err := in.tools.Files.Read(platform.Talosconfig)
	if err != nil {
		return "", fmt.Errorf("read talosconfig: %w", err)
	}
	client := func(certificate pair) (talos.Client, error) {
		config, err := talosconfigWith(file, a.talos.both(), certificate)
		if err != nil {
			return nil, err
		}
		return in.tools.Talos(config)
	}
	withOld, err := client(a.talos.oldClient)
	if err != nil {
		return "", err
	}
	withNew, err := client(a.talos.newClient)
	if err != nil {
		return "", err
	}
	answers := make([]string, len(all))
	var asking sync.WaitGroup
	for i, s := range all {
		asking.Go(func() { answers[i] = refuses(ctx, withOld, withNew, s) })
	}
	asking.Wait()
	var reasons wait.Reasons
	for i, s := range all {
		if answers[i] != "" {
			reasons.Add(s.name, answers[i])
		}
	}
	return strings.Join(reasons.Lines(), "; "), nil
}

// refuses says why it is not certain that the Talos of a server refuses an old client; empty: it is. Of a server that
// is reached through others alone it is these that refuse.
func refuses(ctx context.Context, withOld, withNew talos.Client, s server) string {
	failed := errors.New("it has no address")
	for _, route := range s.routes {
		asking, cancel := context.WithTimeout(ctx, etcdview.AskWithin)
		_, err := withNew.Ask(asking, route)
		cancel()
		if err != nil {
			failed = err
			continue
		}
		asking, cancel = context.WithTimeout(ctx, etcdview.AskWithin)
		_, err = withOld.Ask(asking, route)
		cancel()
		switch {
		case err == nil:
			return "its Talos takes a client certificate of the old authority"
		case !strings.Contains(err.Error(), "tls: "): // the alert of a handshake that failed by the certificate
			return "its Talos does not say that it refuses a client certificate of the old authority: " + err.Error()
		}
		return ""
	}
	return "its Talos does not answer: " + failed.Error()
}
