package caph

import (
	"context"
	"fmt"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/v1beta1"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-k8s/slipway/lab/caph/api"
)

// bootState records how far the boot of the server has come. Once its system runs, its status does not matter.
func (s *machineScope) bootState(server *hcloud.Server) {
	if !s.follows.bootStates || s.hcloudMachine.Status.BootState == api.BootStateOperatingSystemRunning {
		return
	}
	booting := func(reason, message string) {
		s.setBootState(api.BootStateBootingToRealOS)
		conditions.MarkFalse(s.hcloudMachine, api.ServerProvisioned, reason, clusterv1.ConditionSeverityInfo, "%s", message)
	}
	switch server.Status {
	case hcloud.ServerStatusRunning:
		s.setBootState(api.BootStateOperatingSystemRunning)
		conditions.MarkTrue(s.hcloudMachine, api.ServerProvisioned)
	case hcloud.ServerStatusOff:
		booting(api.ServerOff, "server is switched off")
	default:
		booting(api.BootingToRealOS, "Operating system of node is booting")
	}
}

func (s *machineScope) setBootState(state string) {
	if status := &s.hcloudMachine.Status; status.BootState != state {
		status.BootState, status.BootStateSince = state, ptr.To(metav1.Now())
	}
}

// overdue tells whether the boot of the server is in a state for longer than the original waits.
func (s *machineScope) overdue(state string) bool {
	status := &s.hcloudMachine.Status
	if !s.follows.bootStates || status.BootState != state {
		return false
	}
	if status.BootStateSince == nil {
		status.BootStateSince = ptr.To(metav1.Now())
	}
	return time.Since(status.BootStateSince.Time) > bootDeadline
}

// timedOut gives a machine up that is overdue. What its condition complained about stays.
func (s *machineScope) timedOut(ctx context.Context, kind clusterv1.ConditionType, reason, doing string) error {
	what := fmt.Sprintf("%s timed out, in this state since %s", doing,
		time.Since(s.hcloudMachine.Status.BootStateSince.Time).Round(time.Second))
	if c := conditions.Get(s.hcloudMachine, kind); c != nil {
		reason = c.Reason
		if c.Message != "" {
			what = fmt.Sprintf("%s (%s)", c.Message, what)
		}
	}
	return s.remediate(ctx, kind, reason, what)
}

// remediate marks the Machine for remediation, and leaves the HCloudMachine alone from then on.
func (s *machineScope) remediate(ctx context.Context, kind clusterv1.ConditionType, reason, what string) error {
	before := s.machine.DeepCopy()
	if s.machine.Annotations == nil {
		s.machine.Annotations = map[string]string{}
	}
	s.machine.Annotations[clusterv1.RemediateMachineAnnotation] = ""
	if err := s.Patch(ctx, s.machine, client.MergeFrom(before)); err != nil {
		return fmt.Errorf("marking Machine %s for remediation: %w", s.machine.Name, err)
	}
	s.events.Eventf(s.hcloudMachine, "Warning", "HCloudMachineWillBeRemediated",
		"HCloudMachine will be remediated: %s", what)
	s.setBootState(api.BootStateProvisioningFailed)
	conditions.MarkFalse(s.hcloudMachine, kind, reason, clusterv1.ConditionSeverityWarning, "%s", what)
	return nil
}
