// Package rebuild is one entry's life: who loads it, who waits, who serves what is old. It
// joins the flights of a process with a lease in Redis across processes, and owns the wire
// format of entries and the scripts that change them.
//
// It knows no type of a value. It moves an opaque [Copy], made by package cache, through
// the small interface [Values]. docs/protocol.md describes the format and the scripts.
package rebuild
