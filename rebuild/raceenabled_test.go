//go:build race

package rebuild

// raceEnabled tells that the race detector is on: it is ten times slower.
const raceEnabled = true
