// Package cloud is a faithful fake of the Hetzner Cloud API.
//
// It speaks the API's own JSON over HTTP (Handler) or, for programs whose endpoint is fixed, as
// api.hetzner.cloud through an HTTPS proxy (Proxy). Servers are made of Machines that the caller
// gives, load balancers really listen and forward TCP, and everything else is state in one file
// that survives a restart.
//
// What is not simulated is refused with an error that says so, never answered with success:
// TLS termination and PROXY protocol in load balancers, certificates, floating IPs, ISOs, DNS.
// Firewalls are kept, applied and reported, but filter no packet.
package cloud
