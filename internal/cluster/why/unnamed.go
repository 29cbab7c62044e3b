package why

import (
	"fmt"
	"time"
)

// Unnamed is the server of a node with a hostname that Talos chose by itself.
type Unnamed struct {
	Machine      string    `json:"machine"`
	Namespace    string    `json:"namespace"` // of the Machine
	Server       string    `json:"server"`    // which is what the node should be called
	ControlPlane bool      `json:"controlPlane,omitempty"`
	Since        time.Time `json:"since,omitzero"` // when the node appeared
}

// unnamedWithin is how long Talos may take to learn its hostname after the node appeared under another.
const unnamedWithin = 2 * time.Minute

// String says what is wrong with the node.
func (u Unnamed) String() string {
	return fmt.Sprintf("is the server %s, and chose its hostname by itself, as it did not reach Hetzner's metadata service: "+
		"the cloud controller manager finds no server of that name, and leaves the node tainted", u.Server)
}

// unnamed is what to do about it. Talos asks for its hostname for a while.
func (s Situation) unnamed(n Node) Finding {
	u := n.Unnamed
	f := Finding{Who: []string{n.Name}, What: u.String(), weight: weightTrouble}
	if s.At.Sub(u.Since) >= unnamedWithin {
		f.Terminal, f.Seen, f.weight = true, s.At, weightTerminal
	}
	if !u.ControlPlane {
		f.Do = fmt.Sprintf("kubectl --namespace %s delete machine %s in the management cluster has another one created",
			u.Namespace, u.Machine)
		return f
	}
	f.Do, f.Target = "the target replace-machine has another server created", []string{"replace-machine", u.Machine}
	return f
}
