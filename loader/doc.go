// Package loader gives a service's load functions the shape that Levee calls, and
// turns everything such a function can do into a result: a value, "does not exist",
// an error, a panic, or a goroutine that ended itself.
//
// It knows nothing of Redis or of caching, so data-access code can depend on it alone.
package loader
