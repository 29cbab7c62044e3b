package caph

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/v1beta1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/webhook"

	"github.com/slipway-k8s/slipway/lab/caph/api"
	"github.com/slipway-k8s/slipway/lab/standin"
)

// options are the command line.
type options struct {
	kubeconfig           string
	metricsAddress       string
	healthAddress        string
	leaderElect          bool
	leaderElectNamespace string
	watchFilter          string
	namespace            string
	clusterWorkers       int
	machineWorkers       int
	logLevel             string
	syncPeriod           time.Duration
	rateLimit            time.Duration
	disableCSRApproval   bool

	// Flags of the stand-in; the original serves on :9443 with the certificate in webhookCertDir's default.
	webhookHost    string
	webhookPort    int
	webhookCertDir string
	follow         string
}

// inert are the original's flags without effect in the stand-in: they concern bare metal and debugging.
var inert = []string{
	"debug-hcloud-api-calls", "pre-provision-command", "hetznerbaremetalmachine-concurrency",
	"hetznerbaremetalhost-concurrency",
}

func parse(args []string) (*options, error) {
	o := &options{}
	f := pflag.NewFlagSet("caph", pflag.ContinueOnError)
	f.StringVar(&o.kubeconfig, "kubeconfig", "", "Path to a kubeconfig; else $KUBECONFIG, else the Pod's service account.")
	f.StringVar(&o.metricsAddress, "metrics-bind-address", "localhost:8080",
		"Address of the metrics endpoint, 0 for none; loopback only.")
	f.StringVar(&o.healthAddress, "health-probe-bind-address", ":9440",
		"Address of /healthz and /readyz; without a host it is 127.0.0.1.")
	f.BoolVar(&o.leaderElect, "leader-elect", true, "Elect a leader among several managers.")
	f.StringVar(&o.leaderElectNamespace, "leader-elect-namespace", "",
		"Namespace of the election's Lease; the Pod's if empty.")
	f.StringVar(&o.watchFilter, "watch-filter", "", "Act only on objects whose label "+clusterv1.WatchLabel+
		" has this value.")
	f.StringVar(&o.namespace, "namespace", "", "Act only on objects in this namespace.")
	f.IntVar(&o.clusterWorkers, "hetznercluster-concurrency", 1, "HetznerClusters worked on at once.")
	f.IntVar(&o.machineWorkers, "hcloudmachine-concurrency", 1, "HCloudMachines worked on at once.")
	f.StringVar(&o.logLevel, "log-level", "info", "debug, info or error.")
	f.DurationVar(&o.syncPeriod, "sync-period", 3*time.Minute, "Longest interval between two passes over an object.")
	f.DurationVar(&o.rateLimit, "rate-limit", 5*time.Minute, "Pause after the API has reported a rate limit.")
	f.BoolVar(&o.disableCSRApproval, "disable-csr-approval", false,
		"Leave kubelets' certificate requests in workload clusters alone.")
	f.StringVar(&o.webhookHost, "webhook-host", standin.Host().String(),
		"Address that the webhooks listen on (the stand-in's own flag).")
	f.IntVar(&o.webhookPort, "webhook-port", 9443, "Port that the webhooks listen on (the stand-in's own flag).")
	f.StringVar(&o.webhookCertDir, "webhook-cert-dir", filepath.Join(os.TempDir(), "k8s-webhook-server", "serving-certs"),
		"Folder of the webhooks' tls.crt and tls.key; without them no webhooks are served (the stand-in's own flag).")
	f.StringVar(&o.follow, "follow", "", "Version of CAPH whose behaviour the stand-in has, by default "+api.Versions()[0]+
		" (the stand-in's own flag).")
	f.Bool(inert[0], false, "Taken, without effect.")
	for _, name := range inert[1:] {
		f.String(name, "", "Taken, without effect.")
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
	if o.metricsAddress, err = standin.Loopback(o.metricsAddress); err != nil {
		return nil, fmt.Errorf("--metrics-bind-address: %w", err)
	}
	if o.healthAddress, err = standin.Loopback(o.healthAddress); err != nil {
		return nil, fmt.Errorf("--health-probe-bind-address: %w", err)
	}
	if _, err = standin.Loopback(o.webhookHost + ":0"); err != nil {
		return nil, fmt.Errorf("--webhook-host: %w", err)
	}
	return o, nil
}

// Run is the program: it takes the original's flags and works until ctx ends.
func Run(ctx context.Context, args []string) error {
	o, err := parse(args)
	if errors.Is(err, pflag.ErrHelp) {
		return nil
	}
	if err != nil {
		return err
	}
	pace, err := standin.TimeScaleFromEnv()
	if err != nil {
		return err
	}
	if o.logLevel == "debug" {
		verbosity := flag.NewFlagSet("klog", flag.ContinueOnError)
		klog.InitFlags(verbosity)
		if err := verbosity.Set("v", "4"); err != nil {
			return err
		}
	}
	ctrl.SetLogger(klog.Background())
	ctx = ctrl.LoggerInto(ctx, klog.Background())
	release, err := releaseOf(o.follow)
	if err != nil {
		return fmt.Errorf("--follow: %w", err)
	}
	return run(ctx, o, release, pace, apiClient(pace, release.version))
}

func run(ctx context.Context, o *options, release release, pace standin.TimeScale, hetzner Hetzner) error {
	mgr, err := newManager(o)
	if err != nil {
		return err
	}
	if release.needsV1Beta2 {
		newer := schema.GroupVersion{Group: clusterv1.GroupVersion.Group, Version: "v1beta2"}
		for _, kind := range []string{"Cluster", "Machine"} {
			if _, err := mgr.GetRESTMapper().RESTMapping(newer.WithKind(kind).GroupKind(), newer.Version); err != nil {
				return fmt.Errorf("watch %ss of Cluster API: %w", kind, err)
			}
		}
	}
	common := reconciler{
		Client:    mgr.GetClient(),
		reader:    mgr.GetAPIReader(),
		hetzner:   hetzner,
		events:    mgr.GetEventRecorderFor("hetzner-controller"),
		pace:      pace,
		rateLimit: o.rateLimit,
		follows:   release,
	}
	clusters := &clusterReconciler{reconciler: common, targets: &targetClusters{disabled: o.disableCSRApproval}}
	if err := clusters.setup(ctx, mgr, o.watchFilter, o.clusterWorkers); err != nil {
		return fmt.Errorf("controller of HetznerClusters: %w", err)
	}
	if err := (&machineReconciler{common}).setup(ctx, mgr, o.watchFilter, o.machineWorkers); err != nil {
		return fmt.Errorf("controller of HCloudMachines: %w", err)
	}
	if err := (&templateReconciler{common}).setup(ctx, mgr, o.watchFilter); err != nil {
		return fmt.Errorf("controller of HCloudMachineTemplates: %w", err)
	}

	alive := healthz.Ping
	switch _, err := os.Stat(filepath.Join(o.webhookCertDir, "tls.crt")); {
	case errors.Is(err, fs.ErrNotExist):
		klog.Infof("No webhooks: %s has no tls.crt", o.webhookCertDir)
	case err != nil:
		return fmt.Errorf("looking for the webhooks' certificate: %w", err)
	default:
		if err := setupWebhooks(mgr); err != nil {
			return err
		}
		alive = mgr.GetWebhookServer().StartedChecker()
	}
	if err := mgr.AddHealthzCheck("webhook", alive); err != nil {
		return err
	}
	if err := mgr.AddReadyzCheck("webhook", alive); err != nil {
		return err
	}
	return standin.Stopped(ctx, mgr.Start(ctx))
}

func newManager(o *options) (ctrl.Manager, error) {
	restConfig, err := standin.RESTConfig(o.kubeconfig)
	if err != nil {
		return nil, err
	}
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, clusterv1.AddToScheme, api.AddToScheme} {
		if err := add(scheme); err != nil {
			return nil, err
		}
	}
	var namespaces map[string]cache.Config
	if o.namespace != "" {
		namespaces = map[string]cache.Config{o.namespace: {}}
	}
	owned := labels.SelectorFromSet(labels.Set{secretLabel: secretLabelValue})
	return ctrl.NewManager(restConfig, ctrl.Options{
		Scheme:                        scheme,
		Metrics:                       metricsserver.Options{BindAddress: o.metricsAddress},
		HealthProbeBindAddress:        o.healthAddress,
		LeaderElection:                o.leaderElect,
		LeaderElectionID:              "hetzner.cluster.x-k8s.io",
		LeaderElectionNamespace:       o.leaderElectNamespace,
		LeaderElectionReleaseOnCancel: true,
		WebhookServer: webhook.NewServer(webhook.Options{Host: o.webhookHost, Port: o.webhookPort,
			CertDir: o.webhookCertDir}),
		Cache: cache.Options{
			ByObject:          map[client.Object]cache.ByObject{&corev1.Secret{}: {Label: owned}},
			SyncPeriod:        &o.syncPeriod,
			DefaultNamespaces: namespaces,
		},
		// A process may run the stand-in more than once (its tests do).
		Controller: config.Controller{SkipNameValidation: ptr.To(true)},
	})
}
