// Package standin has the common parts of the stand-ins for programs that the lab does not build: how they read a
// kubeconfig, where they may listen and how their polls are scaled. It does not depend on the lab.
package standin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// TimeScaleVariable is the environment variable that TimeScaleFromEnv reads.
const TimeScaleVariable = "LAB_TIME_SCALE"

// minWait bounds how far a scale shortens a poll, so that a tiny scale does not turn waiting into a busy loop.
const minWait = 50 * time.Millisecond

// TimeScale scales polls: 1 keeps the original program's intervals, 0.01 makes 10 s out of 1000 s. It applies to
// intervals of retries, never to deadlines.
type TimeScale float64

// TimeScaleFromEnv reads LAB_TIME_SCALE; unset means 1, the original's intervals.
func TimeScaleFromEnv() (TimeScale, error) {
	text := os.Getenv(TimeScaleVariable)
	if text == "" {
		return 1, nil
	}
	scale, err := strconv.ParseFloat(text, 64)
	if err != nil || !(scale > 0 && scale <= 1000) {
		return 0, fmt.Errorf("environment variable %s=%q: want a number above 0 and up to 1000", TimeScaleVariable, text)
	}
	return TimeScale(scale), nil
}

// Of scales one interval. A wait never gets shorter than 50 ms by it, nor zero,
// which would mean "never" to a controller.
func (s TimeScale) Of(d time.Duration) time.Duration {
	if s == 0 || s == 1 {
		return d
	}
	return max(time.Duration(float64(d)*float64(s)), min(d, minWait))
}

// NetworkVariable is the environment variable that has the Pod's address where the Pod has a network of its own.
const NetworkVariable = "LAB_POD_IP"

// ownNetwork says whether the process is in a network of its Pod, where it listens as the original does.
func ownNetwork() bool { return os.Getenv(NetworkVariable) != "" }

// Host is the address to listen on: all of the Pod's where it has a network of its own, else the machine's loopback.
func Host() net.IP {
	if ownNetwork() {
		return net.IPv4zero
	}
	return net.IPv4(127, 0, 0, 1)
}

// RESTConfig loads a kubeconfig: the file, else $KUBECONFIG, else the Pod's service account, as programs built on
// controller-runtime do.
func RESTConfig(file string) (*rest.Config, error) {
	if file == "" {
		file = os.Getenv(clientcmd.RecommendedConfigPathEnvVar)
	}
	if file != "" {
		config, err := clientcmd.BuildConfigFromFlags("", file)
		if err != nil {
			return nil, fmt.Errorf("loading kubeconfig %s: %w", file, err)
		}
		return config, nil
	}
	config, err := rest.InClusterConfig()
	if err != nil {
		return nil, fmt.Errorf("no --kubeconfig, no $KUBECONFIG and not in a Pod: %w", err)
	}
	return config, nil
}

// Loopback completes a listen address: ":9440", which would listen on every address of the machine, becomes
// "127.0.0.1:9440", unless the Pod has a network of its own. "0" and "" mean off, as for controller-runtime, and
// stay. An address that is not loopback is refused: a stand-in serves one machine only.
func Loopback(address string) (string, error) {
	if address == "" || address == "0" {
		return "0", nil
	}
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return "", fmt.Errorf("listen address %q: %w", address, err)
	}
	switch ip := net.ParseIP(host); {
	case host == "" && ownNetwork(), ip != nil && ip.IsUnspecified() && ownNetwork():
	case host == "" || host == "localhost":
		host = "127.0.0.1"
	case ip == nil || !ip.IsLoopback():
		return "", fmt.Errorf("listen address %q: a stand-in listens on loopback addresses only", address)
	}
	return net.JoinHostPort(host, port), nil
}

// Stopped turns the error of a program that was asked to stop into success.
func Stopped(ctx context.Context, err error) error {
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// Copy copies an object of the API by way of JSON, which it consists of; a stand-in has few of them.
func Copy[T any](in *T) *T {
	out := new(T)
	data, err := json.Marshal(in)
	if err == nil {
		err = json.Unmarshal(data, out)
	}
	if err != nil {
		panic("an object of the API is not JSON: " + err.Error())
	}
	return out
}
