package inotify

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// Of reads a user's in a /proc, as far as this process may look at the user's processes. There is none (false) where
// the kernel has no inotify.
func Of(proc string, user int) (Use, bool) {
	data, err := os.ReadFile(filepath.Join(proc, "sys/fs/inotify/max_user_instances"))
	if err != nil {
		return Use{}, false
	}
	limit, err := strconv.Atoi(strings.TrimSpace(string(data)))
	if err != nil {
		return Use{}, false
	}
	use := Use{Limit: limit}
	processes, _ := filepath.Glob(filepath.Join(proc, "[0-9]*"))
	for _, process := range processes {
		if info, err := os.Stat(process); err != nil || ownerOf(info) != user {
			continue
		}
		open, _ := filepath.Glob(filepath.Join(process, "fd", "*")) // none: it ended meanwhile
		for _, file := range open {
			if target, err := os.Readlink(file); err == nil && target == "anon_inode:inotify" {
				use.Used++
			}
		}
	}
	return use, true
}

func ownerOf(info os.FileInfo) int {
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		return int(stat.Uid)
	}
	return -1
}
