// Package bench measures the cache by situation, each on its own in `go test -bench . ./bench`:
// a hit in memory, with a bare read of ristretto beside it, a hit in Redis, a miss, a stale
// hit, and a stampede. Its program stampede shows the last of these across processes.
//
// Redis is a private server, started for the run; see package redistest.
package bench
