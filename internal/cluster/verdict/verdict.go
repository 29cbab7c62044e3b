// Package verdict turns the error of a question into a verdict of flow.
package verdict

import (
	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/client/kube"
)

// FromError turns an error of asking into a verdict: the answer that something does not exist is an answer,
// everything else is none.
func FromError(err error) flow.Verdict {
	if kube.Absent(err) {
		return flow.Gone("%v", err)
	}
	return flow.Unknown(err)
}
