//go:build race

package cache

// raceEnabled tells that the race detector is on: it allocates.
const raceEnabled = true
