//go:build race

package backup_test

// memoryFactor is what the race detector adds to the memory of a program. A whole snapshot in memory would still exceed
// the limit.
const memoryFactor = 3
