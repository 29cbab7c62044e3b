package kube_test

import (
	"strings"
	"testing"

	"github.com/slipway-k8s/slipway/internal/client/kube"
	"github.com/slipway-k8s/slipway/internal/client/kube/kubetest"
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
		{"crash loop", "Deployment", fields{"spec": fields{"template": template}},
			fields{"metadata": fields{"labels": labels},
				"status": fields{"containerStatuses": []any{fields{"name": "c", "restartCount": 4,
					"state":     fields{"waiting": fields{"reason": "CrashLoopBackOff", "message": "back-off 40s restarting"}},
					"lastState": fields{"terminated": fields{"exitCode": 137, "reason": "OOMKilled", "message": "a\nb"}}}}}},
			[]string{"(Pod x-1: container c ended with exit code 137 (OOMKilled), was restarted 4 times (CrashLoopBackOff): a b)"}},
		{"restarted, not ready", "Deployment", fields{"spec": fields{"template": template}},
			fields{"metadata": fields{"labels": labels},
				"status": fields{"containerStatuses": []any{fields{"name": "c", "restartCount": 2,
					"state":     fields{"running": fields{}},
					"lastState": fields{"terminated": fields{"exitCode": 1}}}}}},
			[]string{"container c ended with exit code 1, was restarted 2 times"}},
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

// A container is counted by its Pod's UID: another Pod of the same name begins again. Pods that are deleted do not count.
func TestRuns(t *testing.T) {
	s, c := connect(t)
	labels := fields{"app": "x"}
	s.Put(kubetest.Object("apps/v1", "DaemonSet", "system", "x",
		fields{"spec": fields{"template": fields{"metadata": fields{"labels": labels}}}}))
	put := func(name, uid, label string, restarts int) {
		s.Put(kubetest.Object("v1", "Pod", "system", name, fields{
			"metadata": fields{"uid": uid, "labels": fields{"app": label}},
			"status": fields{"containerStatuses": []any{fields{"name": "c", "ready": true, "restartCount": restarts,
				"state": fields{"running": fields{}}}}}}))
	}
	put("x-1", "one", "x", 3)
	put("x-2", "two", "x", 0)
	put("y-1", "three", "y", 5)
	runs, err := c.Runs(t.Context(), kube.Workload{Kind: "DaemonSet", Namespace: "system", Name: "x"})
	if err != nil || len(runs) != 2 || runs[kube.Container{Pod: "one", Name: "c"}].Restarts != 3 ||
		runs[kube.Container{Pod: "one", Name: "c"}].Crashes {
		t.Errorf("runs %v, %v", runs, err)
	}
	if _, err := c.Runs(t.Context(), kube.Workload{Kind: "Deployment", Namespace: "system", Name: "x"}); !kube.Absent(err) {
		t.Errorf("of an absent workload: %v", err)
	}
}
