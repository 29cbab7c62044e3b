# The Makefile of the guide that Slipway replaces, in its best form: one target after another, as the guide runs them,
# but every wait is a watch of kubectl or clusterctl and ends with what it waits for. There is no sleep, and no
# `helm --wait`. `make bench` runs it in the lab and compares it with Slipway: docs/performance.md.
#
# The caller sets: BENCH (the program that answers for kind), LAB (the lab's folder), MANIFESTS and VALUES (Slipway's
# own files), the versions, CIDRs and repositories of the lab, and HCLOUD_TOKEN in the environment.
.ONESHELL:
.SHELLFLAGS := -euc
MAKEFLAGS += --no-print-directory

name        ?= k8s
mgmt        := --kubeconfig mgmt.kubeconfig
workload    := --kubeconfig $(name).kubeconfig
timeout     := --timeout=15m
providers   := --config clusterctl.yaml --wait-providers --core cluster-api:$(CAPI_VERSION) \
               --bootstrap talos:$(CABPT_VERSION) --control-plane talos:$(CACPPT_VERSION) \
               --infrastructure hetzner:$(CAPH_VERSION)

# The targets in the guide's order. The guide creates the firewall between bootstrap and pivot with hcloud, which is
# left out: Slipway does more here. When a target is done, a line says so, at which the caller takes the time.
targets     := kind-create capi-init secret apply wait-cp kubeconfig talosconfig cilium hcloud-ccm talos-ccm \
               wait-nodes providers wait-machines move settle
.PHONY: all $(targets)
all:
	@for target in $(targets); do $(MAKE) -f '$(firstword $(MAKEFILE_LIST))' $$target; echo "done: $$target"; done

kind-create:
	'$(BENCH)' -management $(name)-mgmt -lab '$(LAB)' > mgmt.kubeconfig

capi-init:
	clusterctl init $(mgmt) $(providers)

secret:
	kubectl $(mgmt) create secret generic hetzner --from-literal=hcloud="$$HCLOUD_TOKEN"
	kubectl $(mgmt) label secret hetzner clusterctl.cluster.x-k8s.io/move=

# CAPH creates the load balancer, so its address is not known here. clusterctl wants a value for each variable, for
# those that a comment names or that may be empty, too.
apply:
	sed -e '/^ *#/d' -e 's/$${LOAD_BALANCER_IP}/localhost/' -e 's/$${LOAD_BALANCER_IP:=}//' \
		'$(MANIFESTS)/cluster.yaml' > cluster.yaml
	clusterctl generate yaml --config clusterctl.yaml --from cluster.yaml | kubectl $(mgmt) apply -f -

# Ready would need a network plugin, which is installed below.
wait-cp:
	kubectl $(mgmt) wait taloscontrolplane/$(name)-control-plane --for=jsonpath='{.status.initialized}'=true $(timeout)

kubeconfig:
	clusterctl get kubeconfig $(name) --config clusterctl.yaml $(mgmt) > $(name).kubeconfig

talosconfig:
	kubectl $(mgmt) get secret $(name)-talosconfig -o jsonpath='{.data.talosconfig}' | base64 -d > $(name).talosconfig

cilium:
	helm upgrade --install cilium cilium $(workload) -n kube-system \
		--repo $(CILIUM_REPOSITORY) --version $(CILIUM_VERSION) \
		-f '$(VALUES)/cilium-values.yaml' --set operator.replicas=2

hcloud-ccm:
	kubectl $(workload) -n kube-system create secret generic hcloud --from-literal=token="$$HCLOUD_TOKEN" \
		--from-literal=network=$(name)
	helm upgrade --install hcloud-ccm hcloud-cloud-controller-manager $(workload) -n kube-system \
		--repo $(HCLOUD_CCM_REPOSITORY) --version $(HCLOUD_CCM_VERSION) -f '$(VALUES)/hcloud-ccm-values.yaml' \
		--set networking.clusterCIDR=$(POD_CIDR) --set env.HCLOUD_LOAD_BALANCERS_LOCATION.value=nbg1

talos-ccm:
	helm upgrade --install talos-ccm talos-cloud-controller-manager $(workload) -n kube-system \
		--repo $(TALOS_CCM_REPOSITORY) --version $(TALOS_CCM_VERSION) -f '$(VALUES)/talos-ccm-values.yaml'

# A node has its server's name, which CAPH knows before the server joins.
wait-nodes:
	nodes=$$(kubectl $(mgmt) get hcloudmachines -o jsonpath='{.items[*].metadata.name}')
	kubectl $(workload) wait node $$nodes --for=create $(timeout)
	kubectl $(workload) wait node $$nodes --for=condition=Ready $(timeout)

providers:
	clusterctl init $(workload) $(providers)

# clusterctl refuses to move a Machine whose node Cluster API has not found yet.
wait-machines:
	kubectl $(mgmt) wait machines --all --for=jsonpath='{.status.nodeRef.name}' $(timeout)
	kubectl $(mgmt) wait taloscontrolplane/$(name)-control-plane --for=jsonpath='{.status.readyReplicas}'=3 $(timeout)

move:
	clusterctl move --config clusterctl.yaml $(mgmt) --to-kubeconfig $(name).kubeconfig

# A move takes no status along: what is there afterwards, the cluster's own controllers wrote.
settle:
	kubectl $(workload) wait hcloudmachines --all --for=jsonpath='{.status.ready}'=true $(timeout)
	kubectl $(workload) wait machines --all --for=jsonpath='{.status.nodeRef.name}' $(timeout)
	kubectl $(workload) wait taloscontrolplane/$(name)-control-plane --for=jsonpath='{.status.readyReplicas}'=3 $(timeout)
	kubectl $(workload) wait cluster/$(name) --for=condition=Ready $(timeout)
