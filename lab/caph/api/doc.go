// Package api holds the objects of CAPH v1.0.7, group infrastructure.cluster.x-k8s.io/v1beta1, that the stand-in acts
// on: HetznerCluster, HCloudMachine and HCloudMachineTemplate, field for field as the original's CRDs have them. A test
// holds the fields against the original's schemas.
package api

import (
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/scheme"
)

// GroupVersion is the API's group and version.
var GroupVersion = schema.GroupVersion{Group: "infrastructure.cluster.x-k8s.io", Version: "v1beta1"}

// AddToScheme registers the package's types.
func AddToScheme(s *runtime.Scheme) error {
	builder := &scheme.Builder{GroupVersion: GroupVersion}
	builder.Register(
		&HetznerCluster{}, &HetznerClusterList{},
		&HCloudMachine{}, &HCloudMachineList{},
		&HCloudMachineTemplate{}, &HCloudMachineTemplateList{},
	)
	return builder.AddToScheme(s)
}
