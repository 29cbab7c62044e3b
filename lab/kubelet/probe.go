package kubelet

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
)

// watchHealth probes a container's process until ctx is done. It names the probe in sick when the container is to be
// restarted.
func (c *container) watchHealth(ctx context.Context, sick chan<- string) {
	if probe := c.spec.StartupProbe; probe != nil && !c.passStartup(ctx, probe) {
		if ctx.Err() == nil {
			sick <- "startup"
		}
		return
	}
	c.update(func() { c.status.Started = ptr.To(true) })
	var wg sync.WaitGroup
	defer wg.Wait()
	if probe := c.spec.LivenessProbe; probe != nil {
		wg.Go(func() {
			if c.failLiveness(ctx, probe) {
				sick <- "liveness"
			}
		})
	}
	if probe := c.spec.ReadinessProbe; probe != nil {
		c.followReadiness(ctx, probe)
		return
	}
	c.setReady(true)
}

func (c *container) setReady(ready bool) {
	c.update(func() { c.status.Ready = ready })
}

// passStartup returns true once the startup probe succeeds, false when it used up its failures or ctx is done.
func (c *container) passStartup(ctx context.Context, probe *corev1.Probe) bool {
	period := seconds(probe.PeriodSeconds, 10)
	end := time.Now().Add(seconds(probe.InitialDelaySeconds, 0) +
		time.Duration(orDefault(probe.FailureThreshold, 3))*period)
	delay, pause := c.pace(probe)
	for sleep(ctx, delay) {
		err := c.ask(ctx, "startup", probe)
		if err == nil {
			return true
		}
		if time.Now().After(end) {
			c.unhealthy("Startup", err)
			return false
		}
		delay = pause
	}
	return false
}

// followReadiness makes the container ready and unready as its probe says, until ctx is done.
func (c *container) followReadiness(ctx context.Context, probe *corev1.Probe) {
	delay, pause := c.pace(probe)
	ready, successes, failures := false, int32(0), int32(0)
	for sleep(ctx, delay) {
		err := c.ask(ctx, "readiness", probe)
		if ctx.Err() != nil {
			return
		}
		if err == nil {
			successes, failures = successes+1, 0
		} else {
			successes, failures = 0, failures+1
		}
		switch {
		case !ready && successes >= orDefault(probe.SuccessThreshold, 1):
			ready = true
			c.setReady(true)
		case ready && failures >= orDefault(probe.FailureThreshold, 3):
			ready = false
			c.setReady(false)
			c.unhealthy("Readiness", err)
		case namesHost(probe) && failures == orDefault(probe.FailureThreshold, 3):
			c.unhealthy("Readiness", err)
		}
		if delay = pause; ready {
			delay = seconds(probe.PeriodSeconds, 10)
		}
	}
}

// failLiveness returns true when the liveness probe has failed often enough, false when ctx is done.
func (c *container) failLiveness(ctx context.Context, probe *corev1.Probe) bool {
	period := seconds(probe.PeriodSeconds, 10)
	failures := int32(0)
	// A kubelet's first probe, too, comes a part of the period after the start. This one grants the whole of it: many
	// programs start at once here, on few cores.
	for delay := max(period, seconds(probe.InitialDelaySeconds, 0)); sleep(ctx, delay); delay = period {
		err := c.ask(ctx, "liveness", probe)
		if err == nil || ctx.Err() != nil {
			failures = 0
			continue
		}
		if failures++; failures >= orDefault(probe.FailureThreshold, 3) {
			c.unhealthy("Liveness", err)
			return true
		}
	}
	return false
}

// pace returns the time before the first probe and between the ones that have not succeeded yet.
func (c *container) pace(probe *corev1.Probe) (delay, pause time.Duration) {
	if first := c.p.k.cfg.Latency.FirstProbe; first > 0 {
		return first, first
	}
	return seconds(probe.InitialDelaySeconds, 0), seconds(probe.PeriodSeconds, 10)
}

func (c *container) unhealthy(kind string, err error) {
	p := c.p.seen()
	about := &corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: p.Namespace, Name: p.Name, UID: p.UID,
		FieldPath: "spec.containers{" + c.spec.Name + "}"}
	c.p.k.events.Eventf(about, corev1.EventTypeWarning, "Unhealthy", "%s probe failed: %s", kind, err)
}

// ask probes once. A probe that the lab cannot carry out counts as passed while the process lives; an event says so.
func (c *container) ask(ctx context.Context, kind string, probe *corev1.Probe) error {
	ctx, cancel := context.WithTimeout(ctx, seconds(probe.TimeoutSeconds, 1))
	defer cancel()
	switch {
	case c.program == nil && namesHost(probe):
		return c.p.k.askHost(ctx, probe.TCPSocket.Host, c.portNumber(probe.TCPSocket.Port))
	case probe.HTTPGet != nil:
		addr, dial := c.probeTarget(probe.HTTPGet.Host, c.portNumber(probe.HTTPGet.Port))
		if dial == nil {
			return c.unprobed(kind, "port "+probe.HTTPGet.Port.String()+" is not among those that the image mapping asks for")
		}
		return getHTTP(ctx, addr, dial, probe.HTTPGet)
	case probe.TCPSocket != nil:
		addr, dial := c.probeTarget(probe.TCPSocket.Host, c.portNumber(probe.TCPSocket.Port))
		if dial == nil {
			return c.unprobed(kind, "port "+probe.TCPSocket.Port.String()+" is not among those that the image mapping asks for")
		}
		conn, err := dial(ctx, "tcp", addr)
		if err != nil {
			return err
		}
		return conn.Close()
	default:
		return c.unprobed(kind, "the lab knows httpGet and tcpSocket only")
	}
}

func (c *container) unprobed(kind, why string) error {
	if _, said := c.unprobedKinds.LoadOrStore(kind, true); !said {
		c.p.event(corev1.EventTypeWarning, "Unprobed",
			"The %s probe of container %s is counted as passed while its process runs: %s", kind, c.spec.Name, why)
	}
	return nil
}

// portNumber returns the number of a port of the container, 0 for a name that it does not have.
func (c *container) portNumber(port intstr.IntOrString) int32 {
	if port.Type == intstr.Int {
		return port.IntVal
	}
	for _, declared := range c.spec.Ports {
		if declared.Name == port.StrVal {
			return declared.ContainerPort
		}
	}
	return 0
}

// getHTTP succeeds with an answer of 200 to 399, as a kubelet's probe does: no
// certificate is checked, no redirect followed.
func getHTTP(ctx context.Context, addr string, dial dialer, get *corev1.HTTPGetAction) error {
	target := url.URL{Scheme: strings.ToLower(string(get.Scheme)), Host: addr, Path: "/"}
	if target.Scheme == "" {
		target.Scheme = "http"
	}
	if get.Path != "" {
		parsed, err := target.Parse(get.Path)
		if err != nil {
			return fmt.Errorf("path %q: %w", get.Path, err)
		}
		target = *parsed
		target.Host = addr
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, target.String(), nil)
	if err != nil {
		return err
	}
	request.Header.Set("User-Agent", "kube-probe/lab")
	for _, h := range get.HTTPHeaders {
		if http.CanonicalHeaderKey(h.Name) == "Host" {
			request.Host = h.Value
			continue
		}
		request.Header.Add(h.Name, h.Value)
	}
	transport := &http.Transport{DisableKeepAlives: true, DialContext: dial,
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
	client := &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error {
		return http.ErrUseLastResponse
	}}
	answer, err := client.Do(request)
	if err != nil {
		return err
	}
	answer.Body.Close()
	if answer.StatusCode < 200 || answer.StatusCode >= 400 {
		return fmt.Errorf("HTTP probe failed with statuscode: %d", answer.StatusCode)
	}
	return nil
}

func seconds(n, unset int32) time.Duration {
	return time.Duration(orDefault(n, unset)) * time.Second
}

func orDefault(n, unset int32) int32 {
	if n <= 0 {
		return unset
	}
	return n
}
