package talos

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"
	"sync"

	cosi "github.com/cosi-project/runtime/pkg/state"
	"github.com/cosi-project/runtime/pkg/state/impl/inmem"
	"github.com/cosi-project/runtime/pkg/state/impl/namespaced"
	"github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/config/encoder"
	"github.com/siderolabs/talos/pkg/machinery/config/types/v1alpha1"
	configres "github.com/siderolabs/talos/pkg/machinery/resources/config"
	"go.yaml.in/yaml/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/slipway-k8s/slipway/lab/pki"
)

// appliedFile is on a server's disk, beside /var, as on the partition STATE of a real server: the configuration that
// was applied last. It goes before the user data at every later boot. A server that is built again from an image has a
// new disk, and boots from its user data.
var appliedFile = []string{"state", "config.yaml"}

// bootConfig is the configuration that the server boots with.
func (y *system) bootConfig() (machineConfig, error) {
	source, text := "configuration that was applied", y.userData
	applied, err := os.ReadFile(y.server.path(appliedFile...))
	switch {
	case err == nil:
		text = string(applied)
	case errors.Is(err, fs.ErrNotExist):
		source = "user data"
	default:
		return machineConfig{}, fmt.Errorf("read the %s: %w", source, unwrapPath(err))
	}
	config, err := parseConfig(text)
	if err != nil {
		return machineConfig{}, fmt.Errorf("the server's %s: %w", source, err)
	}
	return config, nil
}

// configuration is a running system's machine configuration: the resource that COSI shows, and how it is changed.
type configuration struct {
	system    *system
	resources cosi.State

	applying sync.Mutex // held while a change is made
	current  machineConfig
}

func newConfiguration(ctx context.Context, y *system) (*configuration, error) {
	c := &configuration{system: y, current: y.config, resources: cosi.WrapCore(namespaced.NewState(inmem.Build))}
	if err := c.resources.Create(ctx, configres.NewMachineConfig(y.config.Provider)); err != nil {
		return nil, fmt.Errorf("publish the machine configuration: %w", err)
	}
	return c, nil
}

// readOnly is the state as clients see it.
func (c *configuration) readOnly() cosi.CoreState {
	return cosi.Filter(c.resources, func(_ context.Context, access cosi.Access) error {
		if access.Verb.Readonly() {
			return nil
		}
		return status.Error(codes.PermissionDenied, "a simulated server's resources are read-only")
	})
}

// ApplyConfiguration changes the authorities of the machine configuration, at once and for every later boot. It stores
// what else Talos changes without a reboot, and what a simulated server has nothing of (withoutEffect).
func (m *machined) ApplyConfiguration(
	ctx context.Context, request *machine.ApplyConfigurationRequest,
) (*machine.ApplyConfigurationResponse, error) {
	switch request.Mode {
	case machine.ApplyConfigurationRequest_AUTO, machine.ApplyConfigurationRequest_NO_REBOOT:
	default:
		return nil, status.Errorf(codes.Unimplemented,
			"mode %s: a simulated server applies a configuration without a reboot only (AUTO, NO_REBOOT)", request.Mode)
	}
	next, err := parseConfig(string(request.Data))
	if err != nil {
		return nil, status.Error(codes.InvalidArgument, oneLine(err))
	}
	authorities, err := next.authorities()
	if err != nil {
		return nil, status.Error(codes.InvalidArgument, oneLine(err))
	}
	details, err := m.system.applied.apply(ctx, next, authorities, request.DryRun)
	if err != nil {
		return nil, err
	}
	return &machine.ApplyConfigurationResponse{Messages: []*machine.ApplyConfiguration{{
		Mode: machine.ApplyConfigurationRequest_NO_REBOOT, ModeDetails: details,
	}}}, nil
}

// apply replaces the configuration by one that differs in its authorities alone. An equal one changes nothing.
func (c *configuration) apply(ctx context.Context, next machineConfig, a authorities, dryRun bool) (string, error) {
	if !c.applying.TryLock() {
		return "", status.Error(codes.FailedPrecondition, "another apply configuration is already in progress")
	}
	defer c.applying.Unlock()
	const details = "Applied configuration without a reboot"
	changed, err := difference(c.current, next)
	if err != nil {
		return "", err
	}
	other, err := differenceBeside(c.current, next)
	switch {
	case err != nil:
		return "", err
	case other != "":
		return "", status.Errorf(codes.Unimplemented, "%s differs: a simulated server applies without a reboot only a "+
			"change of machine.ca, machine.acceptedCAs, cluster.ca and cluster.acceptedCAs, and stores one of "+
			"machine.kernel, machine.logging, machine.network.nameservers, machine.network.extraHostEntries, "+
			"machine.registries, machine.sysctls, machine.sysfs, machine.time and of the documents %s", other,
			strings.Join(documentsWithoutEffect, ", "))
	case dryRun && changed == "":
		return "Dry run summary:\n" + details + " (skipped in dry-run).\nNo changes.", nil
	case dryRun:
		return "Dry run summary:\n" + details + " (skipped in dry-run).\n" + changed + " differs.", nil
	case changed == "":
		return details, nil
	}
	text, err := next.Bytes()
	if err != nil {
		return "", fmt.Errorf("encode the configuration: %w", err)
	}
	if err := pki.WriteFile(c.system.server.path(appliedFile...), text); err != nil {
		return "", fmt.Errorf("store the configuration: %w", unwrapPath(err))
	}
	c.current = next
	if err := c.publish(context.WithoutCancel(ctx), next); err != nil { // it is stored, whether the client waits or not
		return "", err
	}
	if old, _ := c.system.authorities.get(); !old.equal(a) {
		c.system.authorities.set(a)
	}
	c.system.log.Info("a configuration is applied without a reboot", "first difference", changed)
	return details, nil
}

// publish replaces the resource.
func (c *configuration) publish(ctx context.Context, next machineConfig) error {
	resource := configres.NewMachineConfig(next.Provider)
	present, err := c.resources.Get(ctx, resource.Metadata())
	if err != nil {
		return fmt.Errorf("publish the machine configuration: %w", err)
	}
	resource.Metadata().SetVersion(present.Metadata().Version())
	if err := c.resources.Update(ctx, resource); err != nil {
		return fmt.Errorf("publish the machine configuration: %w", err)
	}
	return nil
}

// differenceBeside is difference without what may change in a run of a system: the authorities, and what has no effect.
func differenceBeside(a, b machineConfig) (string, error) {
	for _, c := range []*machineConfig{&a, &b} {
		patched, err := c.PatchV1Alpha1(func(config *v1alpha1.Config) error {
			config.MachineConfig.MachineCA, config.MachineConfig.MachineAcceptedCAs = nil, nil
			config.ClusterConfig.ClusterCA, config.ClusterConfig.ClusterAcceptedCAs = nil, nil
			withoutEffect(config.MachineConfig)
			return nil
		})
		if err != nil {
			return "", fmt.Errorf("leave out of the configuration what may change: %w", err)
		}
		*c = machineConfig{patched}
	}
	return difference(a, b, documentsWithoutEffect...)
}

// difference names the first field in which two configurations differ, empty if they are equal. It never has a value,
// which may be secret. Documents of the kinds beside are not compared.
func difference(a, b machineConfig, beside ...string) (string, error) {
	before, err := a.documents()
	if err != nil {
		return "", err
	}
	after, err := b.documents()
	if err != nil {
		return "", err
	}
	for _, name := range sortedKeys(before, after) {
		if kind, _, _ := strings.Cut(name, " "); slices.Contains(beside, kind) {
			continue
		}
		has, will := before[name], after[name]
		if has == nil || will == nil {
			return "document " + name, nil
		}
		if field := differingField("", has, will); field != "" {
			if name != mainDocument {
				field = "document " + name + ": " + field
			}
			return field, nil
		}
	}
	return "", nil
}

// mainDocument is the name of the document with machine and cluster, which has no kind.
const mainDocument = "v1alpha1"

// documents returns the configuration's documents by kind and name, without comments.
func (c machineConfig) documents() (map[string]any, error) {
	text, err := c.EncodeBytes(encoder.WithComments(encoder.CommentsDisabled))
	if err != nil {
		return nil, fmt.Errorf("encode the configuration: %w", err)
	}
	found := map[string]any{}
	for decoder := yaml.NewDecoder(bytes.NewReader(text)); ; {
		var document map[string]any
		if err := decoder.Decode(&document); errors.Is(err, io.EOF) {
			return found, nil
		} else if err != nil {
			return nil, fmt.Errorf("decode the configuration: %w", err)
		}
		kind, _ := document["kind"].(string)
		name, _ := document["name"].(string)
		id := strings.TrimSpace(kind + " " + name)
		if id == "" {
			id = mainDocument
		}
		found[id] = document
	}
}

// differingField returns the path of the first field in which two values differ, empty if they are equal.
func differingField(path string, a, b any) string {
	x, isMap := a.(map[string]any)
	y, areMaps := b.(map[string]any)
	if isMap && areMaps {
		for _, key := range sortedKeys(x, y) {
			if field := differingField(strings.TrimPrefix(path+"."+key, "."), x[key], y[key]); field != "" {
				return field
			}
		}
		return ""
	}
	if reflect.DeepEqual(a, b) {
		return ""
	}
	return path
}

// sortedKeys returns the keys that either has.
func sortedKeys(a, b map[string]any) []string {
	keys := slices.AppendSeq(slices.Collect(maps.Keys(a)), maps.Keys(b))
	slices.Sort(keys)
	return slices.Compact(keys)
}
