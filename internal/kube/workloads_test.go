package kube_test

import (
	"strings"
	"testing"

	"github.com/slipway-k8s/slipway/internal/kube"
	"github.com/slipway-k8s/slipway/internal/kube/kubetest"
)

type fields = map[string]any

func TestUnready(t *testing.T) {
	labels := fields{"app": "x"}
	template := fields{"metadata": fields{"labels": labels}}
	for _, tt := range []struct {
		name, kind string
		object     fields
		pod        fields
		want       []string // parts of what is missing; empty: nothing is
	}{
		{"available", "Deployment", fields{"metadata": fields{"generation": 2}, "spec": fields{"replicas": 2,
			"template": template}, "status": fields{"observedGeneration": 2, "replicas": 2, "updatedReplicas": 2,
			"availableReplicas": 2}}, nil, nil},
		{"half", "Deployment", fields{"spec": fields{"replicas": 2, "template": template}, "status": fields{"replicas": 2,
			"updatedReplicas": 2, "availableReplicas": 1}}, nil, []string{"Deployment x has 1 of 2 available"}},
		{"not yet seen", "Deployment", fields{"metadata": fields{"generation": 3}, "spec": fields{"replicas": 1,
			"template": template}, "status": fields{"observedGeneration": 2, "replicas": 1, "updatedReplicas": 1,
			"availableReplicas": 1}}, nil, []string{"Deployment x"}},
		{"old Pods still there", "Deployment", fields{"spec": fields{"replicas": 1, "template": template},
			"status": fields{"replicas": 2, "updatedReplicas": 1, "availableReplicas": 2}}, nil, []string{"Deployment x"}},
		{"no image", "Deployment", fields{"spec": fields{"template": template}},
			fields{"metadata": fields{"labels": labels},
				"status": fields{"containerStatuses": []any{fields{"name": "c",
					"state": fields{"waiting": fields{"reason": "ImagePullBackOff", "message": "no such image"}}}}}},
			[]string{"0 of 1", "ImagePullBackOff no such image"}},
		{"crashing", "Deployment", fields{"spec": fields{"template": template}},
			fields{"metadata": fields{"labels": labels},
				"status": fields{"containerStatuses": []any{fields{"name": "c",
					"state": fields{"terminated": fields{"exitCode": 3}}}}}},
			[]string{"container c ended with exit code 3"}},
		{"no place", "Deployment", fields{"spec": fields{"template": template}},
			fields{"metadata": fields{"labels": labels},
				"status": fields{"conditions": []any{fields{"type": "PodScheduled", "status": "False", "message": "0/3 nodes are " +
					"available"}}}},
			[]string{"0/3 nodes are available"}},
		{"everywhere", "DaemonSet", fields{"spec": fields{"template": template}, "status": fields{"desiredNumberScheduled": 3,
			"updatedNumberScheduled": 3, "numberReady": 3}}, nil, nil},
		{"no node yet", "DaemonSet", fields{"spec": fields{"template": template}}, nil, []string{"no node"}},
		{"on some nodes", "DaemonSet", fields{"spec": fields{"template": template},
			"status": fields{"desiredNumberScheduled": 3, "updatedNumberScheduled": 3, "numberReady": 1}}, nil,
			[]string{"1 of 3 nodes"}},
		{"stateful", "StatefulSet", fields{"spec": fields{"replicas": 1, "template": template},
			"status": fields{"updatedReplicas": 1, "readyReplicas": 1}}, nil, nil},
		{"not stateful", "StatefulSet", fields{"spec": fields{"replicas": 1, "template": template}}, nil, []string{"0 of 1"}},
		{"completed", "Job", fields{"spec": fields{"template": template},
			"status": fields{"conditions": []any{fields{"type": "Complete", "status": "True"}}}}, nil, nil},
		{"at work", "Job", fields{"spec": fields{"template": template}}, nil, []string{"not completed"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s, c := connect(t)
			version := "apps/v1"
			if tt.kind == "Job" {
				version = "batch/v1"
			}
			s.Put(kubetest.Object(version, tt.kind, "system", "x", tt.object))
			if tt.pod != nil {
				s.Put(kubetest.Object("v1", "Pod", "system", "x-1", tt.pod))
			}
			missing, err := c.Unready(t.Context(), kube.Workload{Kind: tt.kind, Namespace: "system", Name: "x"})
			if err != nil {
				t.Fatal(err)
			}
			if (missing == "") != (len(tt.want) == 0) {
				t.Fatalf("missing %q, want %q", missing, tt.want)
			}
			for _, part := range tt.want {
				if !strings.Contains(missing, part) {
					t.Errorf("missing %q does not say %q", missing, part)
				}
			}
			if len(s.Writes()) > 0 {
				t.Errorf("wrote %v", s.Writes())
			}
		})
	}
}

func TestAbsentWorkload(t *testing.T) {
	_, c := connect(t)
	w := kube.Workload{Kind: "DaemonSet", Namespace: "system", Name: "x"}
	if missing, err := c.Unready(t.Context(), w); err != nil || !strings.Contains(missing, "does not exist") {
		t.Errorf("missing %q, %v", missing, err)
	}
	if there, err := c.Exist(t.Context(), w); err != nil || there {
		t.Errorf("exists: %v, %v", there, err)
	}
}
