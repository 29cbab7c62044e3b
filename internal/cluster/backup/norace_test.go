//go:build !race

package backup_test

// memoryFactor is 1: without the race detector a program has no memory but its own.
const memoryFactor = 1
