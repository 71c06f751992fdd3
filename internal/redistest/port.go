package redistest

import (
	"errors"
	"math/rand/v2"
	"net"
	"strconv"
)

// freePort returns a port of loopback that nobody listens on right now.
// redis-server cannot choose one by itself.
func freePort() (int, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer ln.Close()
	return ln.Addr().(*net.TCPAddr).Port, nil
}

// freeClusterPort returns a port p such that p and p+10000, where a cluster
// node talks to the others, are both free.
func freeClusterPort() (int, error) {
	for range 100 {
		p := 20000 + rand.IntN(10000)
		if isFree(p) && isFree(p+10000) {
			return p, nil
		}
	}
	return 0, errors.New("redistest: no free pair of ports")
}

func isFree(port int) bool {
	ln, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		return false
	}
	_ = ln.Close()
	return true
}
