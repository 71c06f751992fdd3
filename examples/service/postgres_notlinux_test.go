//go:build !linux

package main

import "testing"

// startPostgres is not made for this system.
func startPostgres(*testing.T) (url string, err error) { return "", errNoPostgres }
