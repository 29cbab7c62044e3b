# Every target is one line to the command, which knows the steps, their order and what is done already.
# Variables pass through: make image TALOS_VERSION=v1.12.3. Flags: make bootstrap FLAGS=--lab
SHELL = /bin/sh
GO ?= go
FLAGS ?=

# Go plugins, which nothing here loads, are left out of kustomize: with them each program and each test is linked in twice the time.
export GOFLAGS := $(GOFLAGS) $(if $(findstring -tags,$(GOFLAGS)),,-tags=kustomize_disable_go_plugin_support)

# The variables given on make's command line, but for make's own, quoted for the shell.
given := $(foreach v,$(filter-out FLAGS GO GOFLAGS SHELL CONTROL_PLANE MACHINE FAULT FOLDER SEED FILE ONLY FOR CONTROLLERS PREFIX RACE PUSH SCREENSHOTS FUZZ_TIME,$(.VARIABLES)),$(if $(findstring command,$(origin $(v))),$(v)))
slipway = $(GO) run ./cmd/bootstrap $(FLAGS) $(foreach v,$(given),'$(v)=$(subst ','\'',$($(v)))')

.DEFAULT_GOAL := help

.PHONY: help
help:            ; @$(slipway) --help

.PHONY: bootstrap all image status effects graph plan config doctor logs report serve
all:             ; $(slipway) all
bootstrap:       ; $(slipway) bootstrap
image:           ; $(slipway) image
status:          ; $(slipway) status
effects:         ; $(slipway) effects
graph:           ; $(slipway) graph
report:          ; $(slipway) report
serve:           ; $(slipway) serve
logs:            ; $(slipway) logs $(CONTROLLERS)
doctor:          ; $(slipway) doctor
plan:            ; $(slipway) plan
config:          ; $(slipway) config show

.PHONY: preflight reserve kind-create capi-init secret apply wait-cp kubeconfig talosconfig cilium hcloud-ccm talos-ccm wait-nodes
.PHONY: workers wait-workers
preflight:       ; $(slipway) preflight
reserve:         ; $(slipway) reserve
kind-create:     ; $(slipway) kind-create
capi-init:       ; $(slipway) capi-init
secret:          ; $(slipway) secret
apply:           ; $(slipway) apply
wait-cp:         ; $(slipway) wait-cp
kubeconfig:      ; $(slipway) kubeconfig
talosconfig:     ; $(slipway) talosconfig
cilium:          ; $(slipway) cilium
hcloud-ccm:      ; $(slipway) hcloud-ccm
talos-ccm:       ; $(slipway) talos-ccm
wait-nodes:      ; $(slipway) wait-nodes
workers:         ; $(slipway) workers
wait-workers:    ; $(slipway) wait-workers

# The rest of the first day.
.PHONY: pivot pivot-abort access token firewall firewall-apply clean
firewall:        ; $(slipway) firewall
firewall-apply:  ; $(slipway) firewall-apply
pivot:           ; $(slipway) pivot
pivot-abort:     ; $(slipway) pivot --abort
access:          ; $(slipway) access
token:           ; $(slipway) token
clean:           ; $(slipway) clean

# make scale CONTROL_PLANE=5
.PHONY: scale
scale:           ; $(slipway) scale control-plane $(CONTROL_PLANE)

# make upgrade TO_SET=current, or the versions in bootstrap.yaml; make rehearse-upgrade FILE=k8s-….slipway TO_SET=current
.PHONY: upgrade rehearse-upgrade
upgrade:          ; $(slipway) upgrade $(if $(TO_SET),--to-set $(TO_SET))
rehearse-upgrade: ; $(slipway) upgrade --rehearse $(FILE) $(if $(TO_SET),--to-set $(TO_SET))

# Taking away, and repairing: make replace-machine MACHINE=k8s-control-plane-x7k2p, make restore FILE=k8s-….slipway
.PHONY: destroy leftovers replace-machine restore diagnose readopt recover-quorum drill
destroy:         ; $(slipway) destroy
leftovers:       ; $(slipway) leftovers
replace-machine: ; $(slipway) replace-machine $(MACHINE)
restore:         ; $(slipway) restore $(FILE)
readopt:         ; $(slipway) readopt $(FILE)
diagnose:        ; $(slipway) restore --diagnose $(FILE)
recover-quorum:  ; $(slipway) recover-quorum
drill:           ; $(slipway) drill

# make backup BACKUP_TO=s3://bucket/prefix; make backup-verify FILE=backups/k8s-20260102T150405Z.slipway
.PHONY: backup backup-list backup-verify backup-cronjob
backup:          ; $(slipway) backup
backup-list:     ; $(slipway) backup list
backup-verify:   ; $(slipway) backup verify $(FILE)
backup-cronjob:  ; @$(slipway) backup cronjob

# Many clusters: make fleet-apply FILE=fleet.yaml MANAGEMENT_KUBECONFIG=…
.PHONY: fleet-plan fleet-apply fleet-status fleet-destroy
fleet-plan:      ; $(slipway) fleet plan $(FILE)
fleet-apply:     ; $(slipway) fleet apply $(FILE)
fleet-status:    ; $(slipway) fleet status $(FILE)
fleet-destroy:   ; $(slipway) fleet destroy $(FILE)

# The state in the store that STATE names.
.PHONY: state-list state-show state-pull state-push
state-list:      ; $(slipway) state list
state-show:      ; $(slipway) state show
state-pull:      ; $(slipway) state pull
state-push:      ; $(slipway) state push

# Flux: make flux-sync GITOPS=flux GIT_URL=https://…, or GITEA=true; make recover-releases; make deps-audit FILE='clusters apps', which compares with deps.yaml; make gitops-init FOLDER=../fleet
.PHONY: gitea-token gitea-repository flux flux-sync flux-releases recover-releases deps-audit deps-graph gitops-init
gitea-token:     ; $(slipway) gitea-token
gitea-repository: ; $(slipway) gitea-repository
flux:            ; $(slipway) flux
flux-sync:       ; $(slipway) flux-sync
flux-releases:   ; $(slipway) flux-releases
recover-releases: ; $(slipway) recover-releases
deps-audit:      ; $(slipway) deps audit $(FILE)
deps-graph:      ; @$(slipway) deps graph $(FILE)
gitops-init:     ; $(slipway) gitops init $(FOLDER)

# make lab-save FOLDER=before-cilium; make lab-fault FAULT='management-away for=30s'
.PHONY: lab-up lab-status lab-down lab-save lab-load lab-fault lab-faults
lab-up:          ; $(slipway) lab up
lab-status:      ; $(slipway) lab status
lab-down:        ; $(slipway) lab down
lab-save:        ; $(slipway) lab save $(FOLDER)
lab-load:        ; $(slipway) lab load $(FOLDER)
lab-fault:       ; $(slipway) lab fault add $(FAULT)
lab-faults:      ; $(slipway) lab fault list

# The pivot, killed at every moment that the tests know; a few of them are part of the test below. About an hour.
.PHONY: crash-pivot
crash-pivot:     ; $(GO) run ./cmd/bootstrap lab build && ALL_MOMENTS=1 $(GO) test -count=1 -v -timeout 120m -run '^TestPivot$$' ./test

# Upgrades, killed in every stage: of three servers from guide to 2026-09, of which a few moments are part of the test below; and
# of one server from guide to 2026-11, of a cluster that manages itself and of one before the pivot. About an hour.
.PHONY: crash-upgrade
crash-upgrade:   ; $(GO) run ./cmd/bootstrap lab build && ALL_MOMENTS=1 $(GO) test -count=1 -v -timeout 180m -run '^Test(TwoVersions|UpgradeFromGuide|UpgradeBeforeThePivot)$$' ./test

# Six clusters as Jobs, and the lab is killed under them; a fleet of three is part of the test below.
.PHONY: test-fleet
test-fleet:      ; $(GO) run ./cmd/bootstrap lab build && ALL_MOMENTS=1 $(GO) test -count=1 -v -timeout 60m -run '^TestFleet' ./test

# restore, readopt and recover-quorum, killed before and after every step; the moments at the calls that create an etcd are part of the test below.
.PHONY: crash-restore
crash-restore:   ; $(GO) run ./cmd/bootstrap lab build && ALL_MOMENTS=1 $(GO) test -count=1 -v -timeout 120m -run '^Test(Restore|Readopt|RecoverQuorum)$$' ./test

# The command, killed around each call and in 1,000 random schedules, against fakes that create a cluster in a second; a part
# of that is in the tests.
# From another seed: make crash-quick SEED=5000
SEED ?= 1
.PHONY: crash-quick
crash-quick:     ; SLIPWAY_QUICK_SCHEDULES=1000 SLIPWAY_QUICK_SEED=$(SEED) $(GO) test -count=1 -v -timeout 120m -parallel 4 -run '^TestQuick(Effects|Crashes)$$' ./internal/cli

# Each fuzz target, of parsers of what comes from outside, for a while: make fuzz FUZZ_TIME=5m ONLY=Layer
FUZZ_TIME ?= 10s
.PHONY: fuzz
fuzz:            ; hack/fuzz $(FUZZ_TIME) $(if $(ONLY),'$(ONLY)')

# The crash suite: docs/architecture.md. It resumes where it was ended; ONLY='^chain' chooses cases, FOR=20m ends it after a while.
.PHONY: crash crash-mutations
crash:           ; $(GO) run ./cmd/bootstrap lab build && $(GO) run ./test/crash/cmd $(if $(ONLY),-only '$(ONLY)') $(if $(FOR),-for $(FOR)); good=$$?; $(GO) run ./test/crash/cmd -mutations && exit $$good
crash-mutations: ; $(GO) run ./test/crash/cmd -mutations $(if $(ONLY),-only '$(ONLY)')

# How long Slipway takes beside the guide's Makefile, in the lab, and what a step of the engine costs: docs/performance.md. About
# an hour; PAIRS=1 PACE=real runs one pair, about ten minutes.
PAIRS ?= 3
PACE ?= fast,real
.PHONY: bench bench-flow bench-fleet
bench:           ; $(GO) run ./test/bench -pairs $(PAIRS) -pace $(PACE)
bench-flow:      ; $(GO) test -run '^$$' -bench BenchmarkRun -benchtime 3x ./flow
bench-fleet:     ; $(GO) test -p 1 -run '^$$' -bench 'BenchmarkRollout|BenchmarkFleetRender' -benchtime 5x ./internal/fleet ./internal/cli

# Static binaries for linux and darwin on amd64 and arm64, with checksums and SBOMs, and a container image of those for linux, in
# dist/; release-image builds the image and its binaries alone: make release-image PUSH=registry/repository:tag pushes it.
# release-check builds two clones of HEAD in different folders and compares the bytes. install puts the binary of this machine
# into PREFIX/bin, GOBIN or ~/.local/bin.
.PHONY: release release-image release-check install
release:         ; $(GO) run ./hack/release -image
release-image:   ; $(GO) run ./hack/release -targets linux/amd64,linux/arm64 $(if $(PUSH),-push '$(PUSH)',-image)
release-check:   ; $(GO) run ./hack/release -check -targets host
install:         ; PREFIX='$(PREFIX)' $(GO) run ./hack/release -install

# No test dials a registry outside of this machine.
test test-all test-endtoend test-packages test-flux test-fleet test-serve crash crash-pivot crash-restore crash-upgrade: export LAB_PROGRAMS = source
# Go's garbage collector runs less often in compilers, linkers and tests, which takes a fifth of their processor time.
test test-all test-endtoend test-packages: export GOGC = 400

# The tests of a change: every package, and the whole bootstrap in the lab once (TestFirstDay). -short leaves out the other end to
# end tests and single tests that take longest. The lab's programs first, so that no test meets Go's own limit while they build.
# The end to end tests and the steps come first, as they take longest.
# Many tests wait, so that more packages than there are processors are tested at once.
packages_at_once = 4
packages = $$($(GO) list ./... | grep -vE '/slipway/(test|test/crash|steps|internal/cli)$$')
.PHONY: test
test:
	$(GO) run ./cmd/bootstrap lab build
	$(GO) test -short -p $(packages_at_once) -timeout 30m ./test ./internal/cli ./steps ./test/crash $(packages)
	cd lab && $(GO) test -short -timeout 30m ./...
	@echo 'not run: the other end to end tests and the race detector (make test-all)'

# Everything that a change has to pass before it lands. Two sequences run in parallel, or one after the other where at_once is 1:
# test-endtoend, and test-packages, which begins with the end to end tests in `second` and then tests the packages. Those that start
# goroutines, or lock something, run with the race detector, which needs a C compiler.
# Two sequences have up to four labs at once, of which each takes about 50 of the inotify instances that Linux allows a user.
at_once = $(shell test "$$(cat /proc/sys/fs/inotify/max_user_instances 2>/dev/null || echo 128)" -ge 512 && echo 2 || echo 1)
# The end to end tests with which test-packages begins. They share no cluster with those of test-endtoend.
second = ^Test(TwoVersions|Fleet|Gitea|ProgramsOutOfImages|Doctor|Stock|ChangedBeforeEtcd|TwoAtOnce|LocalManagement|Refusals)$$
raced = $$(grep -lrE '^[[:space:]]*go [a-zA-Z]|\.Go\(|"sync(/atomic)?"' --include=*.go --exclude=*_test.go flow internal \
	| xargs -n1 dirname | sort -u | grep -v '^internal/cli$$' | sed 's,^,./,')
unraced = $$(echo "$(packages)" | grep -vxF "$$($(GO) list $(raced))")
# With the race detector these take a minute instead of seconds, and there is nothing for it to find: they do one thing at a time.
# TestRandomRunsAtOnce, which does not, has fewer cases with it.
without_race = ^Test(RandomRuns(AtOnce)?|AFlippedBitInAChangeIsNoticed|FlippedBits|HostileArchives|LimitsAreBounded|Memory|Origin)$$
slow_raced = $$(grep -lrE 'func Test(RandomRuns|AFlippedBitInAChangeIsNoticed|FlippedBits|HostileArchives|LimitsAreBounded|Memory|Origin)\(' \
	--include=*_test.go flow internal | xargs -n1 dirname | sort -u | sed 's,^,./,')
# Compilers and linkers give way to the labs and the tests, which have deadlines.
low_priority_compile = -toolexec 'nice -n 10'
.PHONY: test-all test-endtoend test-packages test-flux
test-all:
	$(GO) run ./cmd/bootstrap lab build
	$(GO) run ./cmd/bootstrap lab build VERSIONS=guide
	$(MAKE) --no-print-directory --jobs $(at_once) test-endtoend test-packages
	@echo 'not run: all moments of the pivot, of upgrades and of recoveries (make crash-pivot crash-restore crash-upgrade), the crash suite (make crash),' \
		'Flux (make test-flux), a fleet of six (make test-fleet), the page of serve in a browser (make test-serve), 1,000 schedules (make crash-quick), backups of 1 GB (SLIPWAY_LARGE=1 go test ./internal/client/etcd ./internal/client/talos)'

test-endtoend:
	$(GO) test -timeout 85m -skip '$(second)' ./test ./test/crash
test-packages:
	$(GO) test -timeout 85m -run '$(second)' ./test
	$(GO) test $(low_priority_compile) -vet=off -p $(packages_at_once) -timeout 60m ./internal/cli ./steps $(unraced)
	$(GO) test $(low_priority_compile) -vet=off -race -p $(packages_at_once) -timeout 60m -skip '$(without_race)' $(raced)
	$(GO) test -vet=off -timeout 60m -run '$(without_race)' $(slow_raced)
	RAPID_CHECKS=500 $(GO) test -vet=off -race -run '^TestRandomRunsAtOnce$$' ./flow
	cd lab && $(GO) test $(low_priority_compile) -timeout 60m ./...

# The page of serve, in a browser: a rehearsal is watched from start to end, killed and resumed. A few minutes; it is skipped
# where no Chromium or Chrome is installed. SCREENSHOTS=DIR keeps pictures.
.PHONY: test-serve
test-serve:
	$(GO) run ./cmd/bootstrap lab build
	cd test/browser && SCREENSHOTS='$(SCREENSHOTS)' $(GO) test -count=1 -v -timeout 40m ./...

# Flux's controllers, and Gitea, real ones: half an hour the first time, because they are built from source, then a quarter of an
# hour: a run is killed at every effect of theirs.
test-flux:
	$(GO) run ./cmd/bootstrap lab build GITOPS=flux GITEA=true
	$(GO) test -count=1 -v -timeout 60m -run '^Test(Flux|StuckReleases|GiteaFlux|GiteaItself)$$' ./test
