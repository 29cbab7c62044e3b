package hetzner

import (
	"errors"
	"strings"
	"testing"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
)

// The error about a limit of the project says what to do about it. That about an image of the operator's own does not
// name the target image, which does not create it.
func TestAdvice(t *testing.T) {
	limit := hcloud.Error{Code: hcloud.ErrorCodeResourceLimitExceeded, Message: "load balancer limit exceeded"}
	if err := explain(limit); !errors.Is(err, ErrLimit) || !strings.Contains(err.Error(), "run again (load balancer limit exceeded") {
		t.Errorf("of a limit it says %v", err)
	}
	missing := &ImageError{Name: "gpu", Architecture: "amd64", Own: true}
	if strings.Contains(missing.Error(), "target") {
		t.Errorf("of an own image it says %v", missing)
	}
	missing.Own = false
	if !strings.Contains(missing.Error(), "the target image creates one") {
		t.Errorf("of an image that a run creates it says %v", missing)
	}
}
