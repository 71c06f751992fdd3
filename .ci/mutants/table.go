package main

import "slices"

// The packages that a mutant's tests may be in.
const (
	inRoot    = "."
	inCache   = "./cache"
	inRebuild = "./rebuild"
	inLink    = "./internal/link"
	inLoader  = "./loader"
	inLock    = "./lock"
)

// mutants are all of them, sorted by the room whose guard is taken out.
var mutants = slices.Concat(scriptMutants, nodeMutants, newsMutants, endsMutants, localMutants, linkMutants, lockMutants, onceMutants)
