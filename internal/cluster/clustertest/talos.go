package clustertest

import (
	"context"
	"errors"
	"io"
	"strings"

	machineconfig "github.com/siderolabs/talos/pkg/machinery/config"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/internal/client/talos"
)

// HealthyTalos answers on every address.
type HealthyTalos struct{}

func (HealthyTalos) Ask(context.Context, talos.Route) (talos.Node, error) {
	return talos.Node{Version: config.Defaults().TalosVersion, Etcd: "Running", Healthy: true}, nil
}

func (HealthyTalos) EtcdMembers(context.Context, talos.Route) ([]talos.EtcdMember, error) {
	return []talos.EtcdMember{{Name: "k8s-control-plane-0"}, {Name: "k8s-control-plane-1"}, {Name: "k8s-control-plane-2"}},
		nil
}

func (HealthyTalos) EtcdSnapshot(context.Context, talos.Route) (io.ReadCloser, error) {
	return io.NopCloser(strings.NewReader("snapshot")), nil
}

func (h HealthyTalos) LocalEtcdMembers(ctx context.Context, r talos.Route) ([]talos.EtcdMember, error) {
	return h.EtcdMembers(ctx, r)
}

func (HealthyTalos) EtcdIndex(context.Context, talos.Route) (uint64, error) { return 1, nil }

func (HealthyTalos) WipeEphemeral(context.Context, talos.Route) error {
	return errors.New("a server that is healthy is not wiped")
}

func (HealthyTalos) HasEtcdData(context.Context, talos.Route) (bool, error) { return true, nil }

func (HealthyTalos) HasSnapshot(context.Context, talos.Route, io.Reader, int64) (bool, error) {
	return false, nil
}

func (HealthyTalos) UploadSnapshot(context.Context, talos.Route, io.Reader) error {
	return errors.New("an etcd that is healthy is not recovered")
}

func (HealthyTalos) BootstrapRecovered(context.Context, talos.Route) error { return talos.ErrEtcdData }

func (HealthyTalos) Upgrade(context.Context, talos.Route, string) error {
	return errors.New("no test has asked for an upgrade")
}

func (HealthyTalos) Service(context.Context, talos.Route, string) (talos.Service, error) {
	return talos.Service{State: "Running", Healthy: true}, nil
}

func (HealthyTalos) MachineConfig(context.Context, talos.Route) (machineconfig.Provider, error) {
	return nil, errors.New("no test has asked for a machine configuration")
}

func (HealthyTalos) ApplyMachineConfig(context.Context, talos.Route, []byte) error {
	return errors.New("no test has asked for another machine configuration")
}

func (HealthyTalos) CheckMachineConfig(context.Context, talos.Route, []byte) error {
	return errors.New("no test has asked for another machine configuration")
}
