//go:build unix

package statedir

import (
	"fmt"
	"io/fs"
	"os"
	"syscall"
)

// writableBy names who can write a file or folder besides this user and root; empty: that is not so. The group that has
// the owner's number is the owner's own, as user accounts and the volumes of Pods have it. Root, which uses folders of
// other users in a container, is not asked who their owner is.
func writableBy(info fs.FileInfo) string {
	is, known := info.Sys().(*syscall.Stat_t)
	if !known {
		return ""
	}
	return writers(info.Mode().Perm(), is.Uid, is.Gid, uint32(os.Getuid()))
}

func writers(mode fs.FileMode, owner, group, user uint32) string {
	switch {
	case mode&0o002 != 0:
		return fmt.Sprintf("every user (mode %04o)", mode)
	case mode&0o020 != 0 && group != owner:
		return fmt.Sprintf("the group %d (mode %04o)", group, mode)
	case owner != user && owner != 0 && user != 0:
		return fmt.Sprintf("its owner, the user %d", owner)
	}
	return ""
}
