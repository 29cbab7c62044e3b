package cli

import (
	"maps"

	"github.com/slipway-k8s/slipway/internal/operation/scale"
)

// manual is what help says of a target or a step besides what the tables of those have.
type manual struct {
	arguments []explained // in their order
	needs     string      // what has to be there; of steps, besides the steps before it
	changes   string      // what it changes, and where
	example   string      // words behind the command's name
	page      string      // of the documentation
}

// explained is an argument and what it is.
type explained struct{ name, doc string }

const (
	nothing = "nothing"
	store   = "STATE, and a key: STATE_IDENTITY_FILE or STATE_IDENTITY"
)

// manuals has one for every target and every step, by name.
func manuals() map[string]manual {
	file := []explained{{"FILE", "a backup: its path, s3://bucket/prefix/NAME, or the name of one in BACKUP_TO"}}
	run := []explained{{"RUN", "the id of a run, or how it begins; report --list lists them"}}
	const token, cluster, lab = "a Hetzner token, or --lab",
		"the state folder's kubeconfig and talosconfig, and the cluster", "a lab that is up"
	all := map[string]manual{
		targetBootstrap: {needs: token + "; Docker for kind, unless MANAGEMENT is local or existing",
			changes: "the Hetzner project, a temporary management cluster, the state folder", example: "--lab",
			page: "launch.md"},
		targetAll: {needs: token + "; Docker for kind, unless MANAGEMENT is local or existing",
			changes: "as bootstrap, then the management moves into the cluster", example: "all --lab",
			page: "pivot.md"},
		targetDestroy: {needs: token,
			changes: "deletes servers, load balancers, networks and whatever else the cluster has at Hetzner",
			example: "destroy --dry-run", page: "destroy.md"},
		"leftovers": {needs: token, changes: nothing, example: "leftovers",
			page: "destroy.md#what-is-there-and-what-it-costs"},
		"effects": {arguments: run, needs: "a run that the state folder has", changes: nothing,
			example: "effects", page: "resume.md#what-a-run-changed"},
		targetReport: {arguments: run, needs: "a run that the state folder has",
			changes: "writes report.html into the folder of the run, or --out", example: "report --list",
			page: "report.md"},
		targetStatus: {needs: "a state folder; whoever cannot be asked is named", changes: nothing,
			example: "status --watch", page: "status.md"},
		"doctor": {needs: "nothing; without a token, Hetzner is not asked", changes: nothing,
			example: "doctor", page: "doctor.md"},
		"config show": {needs: nothing, changes: nothing, example: "config show LOCATION=fsn1",
			page: "launch.md#configuration"},
		"config schema": {needs: nothing, changes: nothing, example: "config schema", page: "launch.md#configuration"},
		"state list":    {needs: store, changes: nothing, example: "state list STATE=s3://states/k8s", page: "state.md"},
		"state show":    {needs: store, changes: nothing, example: "state show", page: "state.md"},
		"state pull": {needs: store, changes: "the state folder", example: "state pull --version 12",
			page: "state.md#when-folder-and-store-differ"},
		"state push": {needs: store, changes: "the object of the cluster in the store", example: "state push",
			page: "state.md#when-folder-and-store-differ"},
		"state rekey": {needs: store, changes: "the objects of the cluster in the store", example: "state rekey",
			page: "state.md#keys-are-replaced"},
		"state unlock": {needs: store, changes: "the object of the cluster in the store", example: "state unlock --force",
			page: "state.md#the-lease"},
		"config files": {needs: nothing, changes: nothing + "; with --out, writes the built-in files into a folder",
			example: "config files --out files", page: "launch.md#configuration"},
		"graph": {needs: nothing, changes: nothing, example: "graph --output svg", page: "graph.md"},
		"drill": {needs: "the lab's source or its built programs; with --backup the keys of that backup",
			changes: "a lab in a state folder of its own, which it deletes", example: "drill",
			page: "recovery.md#the-drill"},
		"recover-quorum": {needs: token +
			"; the state folder's talosconfig and kubeconfig; every control plane server answers, " +
			"and one has an etcd that runs",
			changes: "resets the control plane's servers one after another, and bootstraps etcd again from one member's data",
			example: "recover-quorum --dry-run", page: "recovery.md#quorum-lost-servers-alive"},
		"recover-releases": {needs: "the cluster, by the state folder's kubeconfig; Flux's helm-controller in it",
			changes: "at most 10 HelmReleases of the cluster: suspends and resumes, deletes Helm's pending record; or sets Ready",
			example: "recover-releases --dry-run", page: "releases.md"},
		"recover-releases cronjob": {needs: "an image that has this command as its entry point",
			changes: nothing + "; it prints objects for kubectl apply",
			example: "recover-releases cronjob --image registry.example/slipway:v1", page: "releases.md#in-the-cluster"},
		"deps audit": {arguments: []explained{{"FILE…", "files, or folders with YAML files"}},
			needs:   "the expected list, deps.yaml; with --live, the state folder's kubeconfig and the cluster",
			changes: nothing + "; with --write, the expected list", example: "deps audit clusters/ infrastructure/",
			page: "dependencies.md"},
		"deps graph": {arguments: []explained{{"FILE…", "files, or folders with YAML files"}},
			needs: "nothing; with --live, the state folder's kubeconfig and the cluster", changes: nothing,
			example: "deps graph clusters/ --output dot", page: "dependencies.md#the-graph"},
		"gitops init": {arguments: []explained{{"DIR",
			"the root of a Git working copy, an empty folder, or the address of a repository"}},
			needs:   "the cluster, by the state folder's kubeconfig",
			changes: "writes clusters/NAME (GIT_PATH) in DIR; to a repository it pushes a commit", example: "gitops init ../fleet",
			page: "gitops.md#a-repository-from-what-runs"},
		"plan": {arguments: []explained{{"TARGET…", "targets of a run; none: bootstrap"}},
			needs:   "nothing; without a token, Hetzner is not asked",
			changes: nothing, example: "plan all", page: "plan.md"},
		targetLogs: {arguments: []explained{{"CONTROLLER…", "which controllers; none: all"}}, needs: cluster +
			", or the management cluster",
			changes: nothing, example: "logs caph --since 10m", page: "logs.md"},
		"replace-machine": {arguments: []explained{{"NAME", "of a control plane Machine, its server or its node"}},
			needs:   token + "; " + cluster + "; etcd keeps its quorum without the machine",
			changes: "deletes the Machine and its server; Cluster API creates another",
			example: "replace-machine k8s-control-plane-x7k2p", page: "destroy.md#replace-a-machine"},
		"rotate ca": {needs: token + "; " + cluster + "; a cluster that is whole",
			changes: "the machine configuration of every server, without a reboot; Cluster API's Secrets; restarts " +
				"what uses the Kubernetes API; asks first",
			example: "rotate ca --dry-run", page: "security.md#certificate-authorities"},
		"scale": {arguments: []explained{{"GROUP", scale.ControlPlaneGroup + ", or " + scale.PoolGroup +
			"NAME of a worker pool"}, {"COUNT", "how many servers there are to be"}},
			needs: token + "; " + cluster + "; a control plane that is whole, if it is to be scaled",
			changes: "adds or deletes servers through Cluster API, those of the control plane one after another; deleting asks " +
				"first",
			example: "scale control-plane 5", page: "scale.md"},
		"upgrade": {needs: token + "; " + cluster + "; a control plane that is whole",
			changes: "the providers, then the servers one after another, then the charts; asks first",
			example: "upgrade --to-set current --dry-run", page: "upgrade.md"},
		"backup": {needs: token + "; " + cluster + "; BACKUP_RECIPIENTS or a passphrase",
			changes: "writes a file into BACKUP_TO, and deletes old ones (BACKUP_KEEP)",
			example: "backup --to /srv/backups --keep 14", page: "backup.md"},
		"backup list": {needs: "BACKUP_TO or --to", changes: nothing, example: "backup list", page: "backup.md"},
		"backup verify": {arguments: file, needs: "its keys: --identity, BACKUP_IDENTITY_FILE or a passphrase",
			changes: nothing, example: "backup verify FILE --identity key.txt", page: "backup.md#verify"},
		"backup key": {arguments: []explained{{"FILE", "one that does not exist"}},
			needs:   "the secret key that opens the backups: --identity or BACKUP_IDENTITY_FILE",
			changes: "creates FILE, which only its owner can read", example: "backup key backup.key --identity key.txt",
			page: "backup.md#who-can-have-made-it"},
		"backup cronjob": {needs: "BACKUP_TO=s3://…, BACKUP_S3_ENDPOINT and a public key in BACKUP_RECIPIENTS",
			changes: nothing + "; it prints objects for kubectl apply",
			example: "backup cronjob --every 6h", page: "backup.md#on-a-schedule"},
		"restore": {arguments: file, needs: token + "; the backup's keys; that no server of the cluster is left",
			changes: "as bootstrap; etcd gets the data of the backup",
			example: "restore --diagnose", page: "recovery.md#all-servers-lost"},
		"adopt": {needs: token + "; MANAGEMENT_KUBECONFIG, or a state folder that leads to the objects",
			changes: "writes bootstrap.yaml, manifests/ and bootstrap/ where they differ from the built-in files, and reserves the " +
				"cluster's name; asks first; nothing of the cluster",
			example: "adopt --dry-run MANAGEMENT_KUBECONFIG=k8s.kubeconfig", page: "adopt.md"},
		"readopt": {arguments: file, needs: token + "; the backup's keys; the cluster answers",
			changes: "creates Cluster API's objects again, in a management cluster or in the cluster; no server",
			example: "readopt FILE --dry-run", page: "recovery.md#management-lost-servers-alive"},
		"lab up": {needs: "the lab's source: a clone, or the copy in the binary",
			changes: "starts programs on this machine alone; state in the state folder's lab/", example: "lab up",
			page: "rehearse.md"},
		"lab status": {needs: nothing, changes: nothing, example: "lab status", page: "rehearse.md"},
		"lab down":   {needs: nothing, changes: "ends the lab's programs", example: "lab down", page: "rehearse.md"},
		"lab build": {needs: "the lab's source, Go",
			changes: "the folder of the lab's programs, in the user's cache", example: "lab build --check",
			page: "rehearse.md#where-the-programs-come-from"},
		"lab save": {arguments: []explained{{"FOLDER", "one that does not exist, or is empty"}}, needs: lab,
			changes: "writes FOLDER", example: "lab save /tmp/saved", page: "rehearse.md#save-and-load"},
		"lab load": {arguments: []explained{{"FOLDER", "of lab save"}},
			needs:   "the lab's source, and no lab at the same addresses",
			changes: "the state folder, which is empty or deleted first with --yes; starts the lab",
			example: "lab load /tmp/saved --state-dir /tmp/again", page: "rehearse.md#save-and-load"},
		targetFaultAdd: {arguments: []explained{{"KIND", "what goes wrong: see below"}, {"key=value…",
			"what the kind takes: help lab fault add KIND"}}, needs: lab,
			changes: "the lab, until the fault ends", example: "lab fault add out-of-stock skip=1 times=1",
			page: "rehearse.md#faults-on-demand"},
		"lab fault list": {needs: lab, changes: nothing, example: "lab fault list",
			page: "rehearse.md#faults-on-demand"},
		"lab fault remove": {arguments: []explained{{"ID", "of the fault: lab fault list has it"}}, needs: lab,
			changes: "the lab: the fault is undone", example: "lab fault remove 3",
			page: "rehearse.md#faults-on-demand"},
		"serve": {arguments: []explained{{"FOLDER…", "each has the bootstrap.yaml of a cluster; none: the configured cluster"}},
			needs: "a state folder that can be written", changes: "what the runs change that are started through it",
			example: "serve --lab", page: "serve.md"},
		"version": {needs: nothing, changes: nothing, example: "version --output json"},
		"help": {arguments: []explained{{"TARGET…", "one target, of one word or more, one step, or a topic: steps, flags, " +
			"variables"}},
			needs: nothing, changes: nothing, example: "help lab fault add", page: ""},
	}
	maps.Copy(all, stepManuals())
	maps.Copy(all, fleetManuals())
	return all
}

// stepManuals has one for every step. What they need are the steps before them.
func stepManuals() map[string]manual {
	step := func(name, changes, page string) manual {
		return manual{changes: changes, example: name + " --lab", page: page}
	}
	const project, management, cluster, state = "the Hetzner project: ", "the management cluster: ", "the cluster: ",
		"the state folder: "
	all := map[string]manual{}
	for name, m := range map[string][2]string{
		"preflight": {nothing, "launch.md#in-what-order"},
		"reserve":   {project + "a placement group that holds the name", "resume.md#two-at-once"},
		targetImage: {project + "a snapshot, created with a temporary server", "image.md"},
		"kind-create": {"this machine: a kind cluster, or what MANAGEMENT says; " + state +
			"management.kubeconfig", "launch.md#management-cluster"},
		"capi-init": {management + "cert-manager, Cluster API and three providers", "launch.md#in-what-order"},
		"secret": {management + "a Secret with the Hetzner token, and its namespace where that is missing",
			"launch.md#in-what-order"},
		"endpoint": {project +
			"a Primary IP, protected against deletion, and the control plane's load balancer, which has it",
			"launch.md#the-address"},
		"apply": {management +
			"the cluster's objects, from which Cluster API creates network, load balancer and servers",
			"launch.md#what-it-creates"},
		"wait-cp":     {nothing + "; it waits for what Cluster API creates", "waiting.md"},
		"kubeconfig":  {state + "kubeconfig", "launch.md#in-what-order"},
		"talosconfig": {state + "talosconfig", "launch.md#in-what-order"},
		"cilium":      {cluster + "the Helm release cilium", "launch.md#in-what-order"},
		"hcloud-ccm":  {cluster + "the Helm release of the Hetzner CCM, and its Secret", "launch.md#in-what-order"},
		"talos-ccm":   {cluster + "the Helm release of the Talos CCM", "launch.md#in-what-order"},
		"wait-nodes":  {nothing + "; it waits for the control plane's nodes", "waiting.md"},
		"workers": {"the cluster that manages this one: the worker pools' objects, from which Cluster API creates and " +
			"removes servers", "launch.md#workers"},
		"wait-workers": {nothing + "; it waits for the workers' nodes", "launch.md#workers"},
		"wait-machines": {nothing + "; it waits until Cluster API has connected to the cluster",
			"launch.md#in-what-order"},
		"addons": {nothing + " by itself: each add-on has a step, which installs a Helm release into the cluster",
			"addons.md"},
		"gitea-token": {cluster + "a token of Gitea's administrator, and a Secret with it", "gitops.md#gitea"},
		"gitea-repository": {cluster + "a private repository in Gitea with a first commit, and Secrets that this names",
			"gitops.md#gitea-and-flux"},
		"flux": {cluster + "Flux's controllers, their kinds and rights", "gitops.md"},
		"flux-sync": {cluster + "a Secret, a GitRepository or OCIRepository, and a Kustomization, by which Flux " +
			"applies the repository", "gitops.md"},
		"flux-releases": {cluster + "HelmReleases that are stuck, at most 10; usually nothing", "releases.md#in-a-run"},
		"wait-releases": {nothing + "; it waits until the releases have stayed available", "launch.md#in-what-order"},
		"providers": {cluster + "cert-manager, Cluster API and three providers, which have nothing to do yet",
			"pivot.md"},
		targetPivot: {"both clusters: Cluster API's objects move from the management cluster into the cluster",
			"pivot.md"},
		"token":          {cluster + "the Secret with the Hetzner token that CAPH reads", "security.md#rotation"},
		targetAccess:     {state + "kubeconfig and talosconfig", "pivot.md"},
		"firewall":       {project + "a firewall", "firewall.md"},
		"firewall-apply": {project + "which servers the firewall is applied to", "firewall.md"},
		"clean": {"this machine: deletes the temporary management cluster, and of an existing one only the namespace that Slipway " +
			"created; " + state +
			"management.kubeconfig", "pivot.md#clean"},
	} {
		all[name] = step(name, m[0], m[1])
	}
	return all
}
