package certmanager

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/slipway-k8s/slipway/lab/standin"
)

// options are the command line.
type options struct {
	kubeconfig       string
	clusterNamespace string
	leaderElect      bool
	leaderNamespace  string
	leaseDuration    time.Duration
	renewDeadline    time.Duration
	retryPeriod      time.Duration
	healthAddress    string
	metricsAddress   string
	ownerRef         bool
}

// inert are flags of the original's controller that have no effect in the stand-in.
var inert = []string{
	"acme-http01-solver-image", "acme-http01-solver-nameservers", "acme-http01-solver-resource-limits-cpu",
	"acme-http01-solver-resource-limits-memory", "acme-http01-solver-resource-request-cpu",
	"acme-http01-solver-resource-request-memory",
	"acme-http01-solver-run-as-non-root", "auto-certificate-annotations", "cluster-issuer-ambient-credentials",
	"concurrent-workers",
	"controllers", "copied-annotation-prefixes", "default-issuer-group", "default-issuer-kind", "default-issuer-name",
	"dns01-check-retry-period", "dns01-recursive-nameservers", "dns01-recursive-nameservers-only", "enable-gateway-api",
	"enable-profiling", "feature-gates", "issuer-ambient-credentials", "kube-api-burst", "kube-api-qps", "logging-format",
	"max-certificate-chain-size", "max-certificate-size", "max-concurrent-challenges", "max-private-key-size",
	"profiler-address",
	"v", "vmodule",
}

func parse(args []string) (*options, error) {
	o := &options{}
	f := pflag.NewFlagSet("cert-manager", pflag.ContinueOnError)
	f.StringVar(&o.kubeconfig, "kubeconfig", "", "Path to a kubeconfig; else $KUBECONFIG, else the Pod's service account.")
	f.StringVar(&o.clusterNamespace, "cluster-resource-namespace", "kube-system",
		"Namespace of the Secrets of ClusterIssuers.")
	f.BoolVar(&o.leaderElect, "leader-elect", true, "Elect a leader among several controllers.")
	f.StringVar(&o.leaderNamespace, "leader-election-namespace", "kube-system", "Namespace of the election's Lease.")
	f.DurationVar(&o.leaseDuration, "leader-election-lease-duration", 60*time.Second,
		"How long a leader that does not renew its lease stays the leader.")
	f.DurationVar(&o.renewDeadline, "leader-election-renew-deadline", 40*time.Second,
		"How long a leader tries to stay one.")
	f.DurationVar(&o.retryPeriod, "leader-election-retry-period", 15*time.Second,
		"How long between two tries to become or stay leader.")
	f.StringVar(&o.healthAddress, "healthz-listen-address", ":9403",
		"Address of /livez, 0 for none; without a host it is 127.0.0.1.")
	f.StringVar(&o.metricsAddress, "metrics-listen-address", ":9402",
		"Address of /metrics, 0 for none; without a host it is 127.0.0.1.")
	f.BoolVar(&o.ownerRef, "enable-certificate-owner-ref", false, "Make Secrets owned by their Certificates.")
	for _, name := range inert {
		f.String(name, "", "Taken, without effect.")
		f.Lookup(name).NoOptDefVal = "true" // some are switches
	}
	if err := f.Parse(args); err != nil {
		return nil, err
	}
	if f.NArg() > 0 {
		return nil, fmt.Errorf("unexpected argument %q", f.Arg(0))
	}
	for _, name := range inert {
		if f.Changed(name) {
			klog.Infof("Flag --%s has no effect in the stand-in", name)
		}
	}
	var err error
	if o.healthAddress, err = standin.Loopback(o.healthAddress); err != nil {
		return nil, fmt.Errorf("--healthz-listen-address: %w", err)
	}
	if o.metricsAddress, err = standin.Loopback(o.metricsAddress); err != nil {
		return nil, fmt.Errorf("--metrics-listen-address: %w", err)
	}
	return o, nil
}

// Run is the program: it takes the flags of the original's controller and works until ctx ends.
func Run(ctx context.Context, args []string) error {
	o, err := parse(args)
	if errors.Is(err, pflag.ErrHelp) {
		return nil
	}
	if err != nil {
		return err
	}
	ctrl.SetLogger(klog.Background())
	restConfig, err := standin.RESTConfig(o.kubeconfig)
	if err != nil {
		return err
	}
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, addToScheme} {
		if err := add(scheme); err != nil {
			return err
		}
	}
	mgr, err := ctrl.NewManager(restConfig, ctrl.Options{
		Scheme:                        scheme,
		Metrics:                       metricsserver.Options{BindAddress: o.metricsAddress},
		HealthProbeBindAddress:        o.healthAddress,
		LivenessEndpointName:          "/livez",
		LeaderElection:                o.leaderElect,
		LeaderElectionID:              "cert-manager-controller",
		LeaderElectionNamespace:       o.leaderNamespace,
		LeaderElectionReleaseOnCancel: true,
		LeaseDuration:                 &o.leaseDuration,
		RenewDeadline:                 &o.renewDeadline,
		RetryPeriod:                   &o.retryPeriod,
		// A process may run the stand-in more than once (its tests do).
		Controller: config.Controller{SkipNameValidation: ptr.To(true)},
	})
	if err != nil {
		return err
	}
	if err := setup(mgr, o); err != nil {
		return err
	}
	return standin.Stopped(ctx, mgr.Start(ctx))
}

func setup(mgr ctrl.Manager, o *options) error {
	sources := issuers{Reader: mgr.GetClient(), clusterNamespace: o.clusterNamespace}
	controllers := []interface{ setup(ctrl.Manager) error }{
		&issuerReconciler{Client: mgr.GetClient(), issuers: sources},
		&issuerReconciler{Client: mgr.GetClient(), issuers: sources, cluster: true},
		&certificateReconciler{
			Client: mgr.GetClient(), issuers: sources,
			events: mgr.GetEventRecorderFor("cert-manager"), ownerRef: o.ownerRef,
		},
	}
	for _, what := range injectables {
		controllers = append(controllers, &injectReconciler{Client: mgr.GetClient(), reader: mgr.GetAPIReader(), what: what})
	}
	for _, controller := range controllers {
		if err := controller.setup(mgr); err != nil {
			return fmt.Errorf("setting up a controller: %w", err)
		}
	}
	return mgr.AddHealthzCheck("ping", healthz.Ping)
}
