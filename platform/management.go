package platform

import "context"

// Possible is a ManagementProvider that does not work on every machine.
type Possible interface {
	// Possible is nil if it works on this one. It changes nothing.
	Possible(context.Context) error
}

// Adopter is a ManagementProvider that does not use every cluster which it finds under the name.
type Adopter interface {
	// Adoptable is nil if a run uses the cluster, which exists, or may create it again. It changes nothing.
	Adoptable(ctx context.Context, name string) error
}

// EngineUser is a ManagementProvider that runs the management cluster in a container engine.
type EngineUser interface {
	// Engine is what the engine says of itself. An error means that it could not be asked.
	Engine(context.Context) (Engine, error)
}

// Engine is what a container engine says of itself.
type Engine struct {
	Name        string // "docker", "podman"
	Version     string
	Rootless    bool
	CgroupV2    bool
	CanLimit    bool  // memory, processes and CPU of a container
	MemoryBytes int64 // of its machine; 0: not told
	DataRoot    string
	FreeBytes   int64 // where its images and containers lie; 0: not told

	NodeImage      string // that kind creates a node from; empty: not known
	NodeImageThere bool   // else it has to be pulled
	// inotify instances of the user that containers run as, on this machine; limit 0: not known. Those of another user's
	// processes are not counted.
	InotifyUsed, InotifyLimit int
}
