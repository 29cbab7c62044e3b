package lab

import (
	"context"
	"encoding/json"
	"net/http"
	"time"
)

// Status is what a lab reports about itself: GET /v1/status.
type Status struct {
	Isolation string `json:"isolation"`
	Parts     []struct {
		Name, Fidelity, Detail string
	} `json:"parts"`
	Clusters []struct {
		Name, Kind, Endpoint, Reason string
		Ready                        bool
	} `json:"clusters"`
	Servers []struct {
		Name, Status, PublicIPv4, PrivateIPv4, Talos, Etcd, APIServer, Kubernetes string
		ID                                                                        int64
	} `json:"servers"`
	LoadBalancers []struct {
		Name, PublicIPv4, PrivateIP string
		Services                    []struct {
			ListenPort, DestinationPort, Healthy, Targets int
			Listening                                     bool
		}
	} `json:"loadBalancers"`
	Processes []struct {
		Name, Cluster, Pod, Server string
		PID                        int
		StartedAt                  time.Time
		RSSBytes                   int64
	} `json:"processes"`
	Faults    []Fault  `json:"faults"`
	Listeners []string `json:"listeners"`
	Notes     []string `json:"notes"`
}

// Status is what the lab reports about itself: a Status. The error is ErrDown where it is not up.
func (l *Lab) Status(ctx context.Context) (status json.RawMessage, err error) {
	ctx, cancel := context.WithTimeout(ctx, AnswerWithin)
	defer cancel()
	err = l.Client.Do(ctx, http.MethodGet, "/v1/status", &status)
	return status, err
}
