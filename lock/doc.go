// Package lock holds the lease: a claim on one Redis key for a limited time, renewed while
// its work runs, with a fencing number and a context that ends with it and says why.
//
// A rebuild lease of package rebuild is such a lease that lives inside a cache entry. The
// general-purpose Redis lock (queue, idempotency, quorum) will stand on the same type; it
// is not part of this version.
package lock
