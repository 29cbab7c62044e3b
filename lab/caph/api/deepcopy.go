package api

import (
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/slipway-k8s/slipway/lab/standin"
)

// DeepCopy returns a copy.
func (c *HetznerCluster) DeepCopy() *HetznerCluster { return standin.Copy(c) }

// DeepCopyObject implements runtime.Object.
func (c *HetznerCluster) DeepCopyObject() runtime.Object { return c.DeepCopy() }

// DeepCopyObject implements runtime.Object.
func (l *HetznerClusterList) DeepCopyObject() runtime.Object { return standin.Copy(l) }

// DeepCopy returns a copy.
func (m *HCloudMachine) DeepCopy() *HCloudMachine { return standin.Copy(m) }

// DeepCopyObject implements runtime.Object.
func (m *HCloudMachine) DeepCopyObject() runtime.Object { return m.DeepCopy() }

// DeepCopyObject implements runtime.Object.
func (l *HCloudMachineList) DeepCopyObject() runtime.Object { return standin.Copy(l) }

// DeepCopy returns a copy.
func (t *HCloudMachineTemplate) DeepCopy() *HCloudMachineTemplate { return standin.Copy(t) }

// DeepCopyObject implements runtime.Object.
func (t *HCloudMachineTemplate) DeepCopyObject() runtime.Object { return t.DeepCopy() }

// DeepCopyObject implements runtime.Object.
func (l *HCloudMachineTemplateList) DeepCopyObject() runtime.Object { return standin.Copy(l) }
