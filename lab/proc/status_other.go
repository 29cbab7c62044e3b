//go:build unix && !linux

package proc

type pidMap struct{}

func hostPIDs() pidMap { return pidMap{} }

func (pidMap) of(pid int) int { return pid }

// rss is unknown without /proc.
func rss(int) int64 { return 0 }
