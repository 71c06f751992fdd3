// Package link holds what Levee keeps per Redis client, however many caches use it: calls
// that cost no more than a budget, the circuit breaker, the offset of each master's clock,
// the wake-up hub, the renewal of all leases, the streams by which nodes tell each other of
// changes, and the tracking of changes that others make.
//
// It knows nothing of entries, locks or values, sets no option on the user's client and
// never closes it.
package link
