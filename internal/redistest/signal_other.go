//go:build !unix

package redistest

import "os"

func pause(*os.Process) error       { return ErrUnsupported }
func resume(*os.Process) error      { return ErrUnsupported }
func terminate(p *os.Process) error { return p.Kill() }
