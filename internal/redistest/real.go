package redistest

import "errors"

// Real returns a server of this test's own, started with args, that is stopped
// when the test ends. Without a real server it falls back to [Embedded] and
// says so, or fails if LEVEE_REQUIRE_REDIS=1.
func Real(t TB, args ...string) *Server {
	t.Helper()
	s, err := Start(Options{Args: args})
	if errors.Is(err, ErrNoServer) && !mustBeReal() {
		t.Logf("REDISTEST: THIS TEST RUNS AGAINST THE EMBEDDED SERVER, NOT A REAL ONE: %v", err)
		s, err = Embedded()
	}
	return stopAfter(t, s, err)
}

// RealOnly returns a server process of this test's own, for tests that pause,
// kill or configure it; REDIS_ADDR is not used. Without a server program the
// test is skipped, or fails if LEVEE_REQUIRE_REDIS=1.
func RealOnly(t TB, args ...string) *Server {
	t.Helper()
	s, err := Start(Options{Args: args, Private: true})
	skipWithout(t, err)
	return stopAfter(t, s, err)
}

func stopAfter(t TB, s *Server, err error) *Server {
	t.Helper()
	if err != nil {
		t.Fatalf("redistest: %v", err)
	}
	t.Cleanup(func() { _ = s.Stop() })
	return s
}

func skipWithout(t TB, err error) {
	t.Helper()
	if errors.Is(err, ErrNoServer) && !mustBeReal() {
		t.Skipf("REDISTEST: SKIPPED, IT NEEDS A REAL SERVER: %v", err)
	}
}
