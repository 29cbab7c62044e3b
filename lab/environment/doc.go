// Package environment composes the lab: the simulated Hetzner Cloud, its Talos servers, the management clusters, the
// repository of providers and charts, and the control API that the command uses. The state of a Lab is in one folder;
// a Lab that is started on that folder again resumes it.
package environment
