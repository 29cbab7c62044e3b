// Package cloud simulates the Hetzner Cloud API.
//
// It serves the API's JSON over HTTP (Handler) and, for programs with a fixed endpoint, as api.hetzner.cloud through an
// HTTPS proxy (Proxy). The caller provides the Machines of servers, load balancers listen and forward TCP, and
// everything else is state in one file that survives a restart.
//
// Requests for features that are not simulated fail with an error that says so: TLS termination and PROXY protocol in
// load balancers, certificates, floating IPs, ISOs, DNS. Firewalls are stored, applied and reported, but filter no
// packet.
package cloud
