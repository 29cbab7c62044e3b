package cloud

import (
	"slices"

	"github.com/hetznercloud/hcloud-go/v2/hcloud/schema"
)

// The default health check of a service (docs.hetzner.cloud, "Load Balancers").
const (
	checkInterval = 15 // seconds
	checkTimeout  = 10 // seconds
	checkRetries  = 3
)

// service is one port of a load balancer, in the API's own form.
type service struct {
	Protocol        string                          `json:"protocol"` // tcp or http, which is forwarded as TCP
	ListenPort      int                             `json:"listen_port"`
	DestinationPort int                             `json:"destination_port"`
	Proxyprotocol   bool                            `json:"proxyprotocol"` // always false
	HTTP            *schema.LoadBalancerServiceHTTP `json:"http,omitempty"`
	HealthCheck     healthCheck                     `json:"health_check"`
}

type healthCheck struct {
	Protocol string     `json:"protocol"`
	Port     int        `json:"port"`
	Interval int        `json:"interval"` // seconds
	Timeout  int        `json:"timeout"`  // seconds
	Retries  int        `json:"retries"`
	HTTP     *httpCheck `json:"http,omitempty"`
}

// httpCheck is schema.LoadBalancerServiceHealthCheckHTTP with the API's null domain.
type httpCheck struct {
	Domain      *string  `json:"domain"`
	Path        string   `json:"path"`
	Response    string   `json:"response"`
	StatusCodes []string `json:"status_codes"`
	TLS         bool     `json:"tls"`
}

// serviceRequest is the body of add_service and update_service; absent fields do not change.
type serviceRequest struct {
	Protocol        *string `json:"protocol"`
	ListenPort      *int    `json:"listen_port"`
	DestinationPort *int    `json:"destination_port"`
	Proxyprotocol   *bool   `json:"proxyprotocol"`
	HealthCheck     *struct {
		Protocol *string `json:"protocol"`
		Port     *int    `json:"port"`
		Interval *int    `json:"interval"`
		Timeout  *int    `json:"timeout"`
		Retries  *int    `json:"retries"`
		HTTP     *struct {
			Domain      *string   `json:"domain"`
			Path        *string   `json:"path"`
			Response    *string   `json:"response"`
			StatusCodes *[]string `json:"status_codes"`
			TLS         *bool     `json:"tls"`
		} `json:"http"`
	} `json:"health_check"`
}

// addPort adds a service to a load balancer.
func (c *Cloud) addPort(to *loadBalancer, wanted serviceRequest) error {
	if wanted.Protocol == nil {
		return invalid("protocol", "is required")
	}
	made := service{HealthCheck: healthCheck{Protocol: "tcp", Interval: checkInterval, Timeout: checkTimeout,
		Retries: checkRetries}}
	if *wanted.Protocol == "http" {
		made.ListenPort, made.DestinationPort = 80, 80
		made.HTTP = &schema.LoadBalancerServiceHTTP{CookieName: "HCLBSTICKY", CookieLifetime: 300, Certificates: []int64{}}
	}
	merge(&made.DestinationPort, wanted.ListenPort) // unless the request has its own
	if err := made.change(wanted); err != nil {
		return err
	}
	if made.HealthCheck.Port == 0 {
		made.HealthCheck.Port = made.DestinationPort
	}
	if slices.ContainsFunc(to.Services, func(other service) bool { return other.ListenPort == made.ListenPort }) {
		return refuse("source_port_already_used", "listen port %d is already in use", made.ListenPort)
	}
	if kind := c.catalog.loadBalancerTypes[to.Type]; len(to.Services) >= kind.services {
		return refuse("resource_limit_exceeded", "%s has at most %d services", kind.Name, kind.services)
	}
	to.Services = append(to.Services, made)
	return nil
}

// change applies a request to the service, which is left in an unknown state by an error.
func (s *service) change(wanted serviceRequest) error {
	merge(&s.Protocol, wanted.Protocol)
	merge(&s.ListenPort, wanted.ListenPort)
	merge(&s.DestinationPort, wanted.DestinationPort)
	switch {
	case s.Protocol == "https":
		return invalid("protocol", "the lab's load balancers do not terminate TLS: use tcp")
	case s.Protocol != "tcp" && s.Protocol != "http":
		return invalid("protocol", "%q is not tcp, http or https", s.Protocol)
	case wanted.Proxyprotocol != nil && *wanted.Proxyprotocol:
		return invalid("proxyprotocol", "the lab's load balancers do not support the PROXY protocol")
	case s.ListenPort < 1 || s.ListenPort > 65535:
		return invalid("listen_port", "must be 1 to 65535")
	case s.DestinationPort < 1 || s.DestinationPort > 65535:
		return invalid("destination_port", "must be 1 to 65535")
	case wanted.HealthCheck == nil:
		return nil
	}
	check := wanted.HealthCheck
	merge(&s.HealthCheck.Protocol, check.Protocol)
	merge(&s.HealthCheck.Port, check.Port)
	merge(&s.HealthCheck.Interval, check.Interval)
	merge(&s.HealthCheck.Timeout, check.Timeout)
	merge(&s.HealthCheck.Retries, check.Retries)
	switch now := s.HealthCheck; {
	case now.Protocol != "tcp" && now.Protocol != "http":
		return invalid("health_check.protocol", "%q is not tcp or http", now.Protocol)
	case now.Interval < 3 || now.Interval > 60:
		return invalid("health_check.interval", "must be 3 to 60 seconds")
	case now.Timeout < 1 || now.Timeout > now.Interval:
		return invalid("health_check.timeout", "must be at least a second and at most the interval")
	case now.Retries < 1 || now.Retries > 5:
		return invalid("health_check.retries", "must be 1 to 5")
	}
	if s.HealthCheck.Protocol == "tcp" {
		s.HealthCheck.HTTP = nil
		return nil
	}
	if s.HealthCheck.HTTP == nil {
		s.HealthCheck.HTTP = &httpCheck{Path: "/", StatusCodes: []string{"2??", "3??"}}
	}
	if http := check.HTTP; http != nil {
		into := s.HealthCheck.HTTP
		if http.Domain != nil {
			into.Domain = http.Domain
		}
		merge(&into.Path, http.Path)
		merge(&into.Response, http.Response)
		merge(&into.StatusCodes, http.StatusCodes)
		merge(&into.TLS, http.TLS)
	}
	return nil
}

// merge replaces a value by one that a request may hold.
func merge[T any](into, from *T) {
	if from != nil {
		*into = *from
	}
}

func addService(q *call, one *loadBalancer, wanted serviceRequest) (any, error) {
	if err := q.addPort(one, wanted); err != nil {
		return nil, err
	}
	return q.acted("add_service", on(kindLoadBalancer, one.ID)), nil
}

// serviceAt finds a service by its port; -1 if there is none.
func (l *loadBalancer) serviceAt(port int) int {
	return slices.IndexFunc(l.Services, func(other service) bool { return other.ListenPort == port })
}

func updateService(q *call, one *loadBalancer, wanted serviceRequest) (any, error) {
	at := one.serviceAt(deref(wanted.ListenPort))
	if at < 0 {
		return nil, invalid("listen_port", "the load balancer has no service on port %d", deref(wanted.ListenPort))
	}
	changed := one.Services[at]
	if changed.HealthCheck.HTTP != nil {
		own := *changed.HealthCheck.HTTP
		changed.HealthCheck.HTTP = &own
	}
	if err := changed.change(wanted); err != nil {
		return nil, err
	}
	one.Services[at] = changed
	return q.acted("update_service", on(kindLoadBalancer, one.ID)), nil
}

func deleteService(q *call, one *loadBalancer, wanted schema.LoadBalancerDeleteServiceRequest) (any, error) {
	at := one.serviceAt(wanted.ListenPort)
	if at < 0 {
		return nil, invalid("listen_port", "the load balancer has no service on port %d", wanted.ListenPort)
	}
	one.Services = slices.Delete(one.Services, at, at+1)
	return q.acted("delete_service", on(kindLoadBalancer, one.ID)), nil
}
