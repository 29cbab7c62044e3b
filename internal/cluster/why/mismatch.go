package why

import (
	"fmt"
	"time"
)

// Mismatch is the server of a node that is registered under another name or provider ID than the server has. Nothing
// corrects that: its Machine has to be replaced.
type Mismatch struct {
	Machine      string `json:"machine"`
	Namespace    string `json:"namespace"` // of the Machine
	Server       string `json:"server"`    // its name, which is what the node should be called
	ControlPlane bool   `json:"controlPlane,omitempty"`
	// ProviderID is the server's where the node has another one; empty: the node has another name.
	ProviderID string    `json:"providerID,omitempty"`
	Since      time.Time `json:"since,omitzero"` // when it was first seen; zero: Cluster API has not seen it yet
}

// mismatchWithin is how long a mismatch may pass by itself: Talos asks for its hostname for a while, and the cloud
// controller manager deletes a node whose server is gone, if it sees the node before its new server has started.
const mismatchWithin = 2 * time.Minute

// String says what is wrong with the node.
func (m Mismatch) String() string {
	if m.ProviderID != "" {
		return fmt.Sprintf("CAPH created its server again, as %s, and the node kept the old provider ID: neither Cluster "+
			"API nor the cloud controller manager finds its server", m.ProviderID)
	}
	return fmt.Sprintf("is the server %s, and chose its hostname by itself, as it did not reach Hetzner's metadata "+
		"service: the cloud controller manager finds no server of that name, and leaves the node tainted", m.Server)
}

// Do is what ends it, and the target of it with its arguments; nil: it is no target.
func (m Mismatch) Do() (do string, target []string) {
	if m.ControlPlane {
		return "the target replace-machine has another server created", []string{"replace-machine", m.Machine}
	}
	return fmt.Sprintf("kubectl --namespace %s delete machine %s in the management cluster has another one created",
		m.Namespace, m.Machine), nil
}

func (s Situation) mismatch(n Node) Finding {
	f := Finding{Who: []string{n.Name}, What: n.Mismatch.String(), weight: weightTrouble}
	if since := n.Mismatch.Since; !since.IsZero() && s.At.Sub(since) >= mismatchWithin {
		f.Terminal, f.Seen, f.weight = true, s.At, weightTerminal
	}
	f.Do, f.Target = n.Mismatch.Do()
	return f
}
