// Package redistest gives tests, benchmarks and the programs under bench the
// servers they run against and the faults they must survive:
//
//   - private redis-server or valkey-server processes ([Real], [RealOnly],
//     [Shared], [Start]), their replicas ([Replica]) and a three-master [Cluster];
//   - miniredis on loopback ([Embedded]) where there is no server program;
//   - miniredis inside a testing/synctest bubble ([Bubble]), with one [Link] a
//     node that can be frozen, cut and refused;
//   - faults by command, for one client ([Faults]), and by connection, for
//     everything that speaks TCP ([Proxy]);
//   - nodes as processes: the test binary started again ([Process], [Main]).
//
// Servers listen on loopback only, keep nothing on disk and die with the
// process that started them. The package does not import "testing", so that an
// ordinary program can use the Start functions; tests pass their *testing.T as
// [TB].
//
// Environment: REDIS_ADDR (host:port) names a running server to use instead of
// a private one; LEVEE_REQUIRE_REDIS=1 makes a test fail that finds no real
// server, instead of falling back or skipping.
package redistest
