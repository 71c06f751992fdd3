// Package lattice holds no code. Its tests keep the rules that a compiler does
// not: which room may import which, where a third-party library may be named,
// what may lie at the top level, how long a function may be.
package lattice
