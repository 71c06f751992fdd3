package lock

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/levee-cache/levee/internal/redistest"
)

// fewRights are all that a user of locks needs.
const fewRights = "on >p resetkeys ~lk:* resetchannels &lk:* -@all +eval +evalsha +time +get +set +pexpire +append +setrange +publish +subscribe +unsubscribe +ping +hello +client"

// limit makes a user with few rights.
func limit(t *testing.T, c *redis.Client) {
	t.Helper()
	args := []any{"acl", "setuser", "few"}
	for right := range strings.FieldsSeq(fewRights) {
		args = append(args, right)
	}
	must(t, c.Do(t.Context(), args...).Err())
}

// works is what a lock must do in every topology: take turns, and stay held for longer than a lease.
func works(t *testing.T, name string, a, b redis.UniversalClient) {
	t.Helper()
	first, second := onReal(t, a), onReal(t, b)
	turns(t, name, 20, 20*time.Second, first, second)
	l := lock(t, first, name, WithLease(300*time.Millisecond))
	<-time.After(600 * time.Millisecond) // of renewals
	_, err := second.TryLock(t.Context(), name)
	is(t, name+": who comes meanwhile", err, ErrBusy)
	must(t, l.Unlock(t.Context()))
}

func TestT35TheLockWorksUnderBothProtocolsAndWithFewRights(t *testing.T) {
	s := redistest.RealOnly(t)
	limit(t, s.Client(t))
	for _, protocol := range []int{2, 3} {
		edit := func(o *redis.Options) { o.Protocol, o.Username, o.Password = protocol, "few", "p" }
		works(t, fmt.Sprint("under ", protocol), s.Client(t, edit), s.Client(t, edit))
	}
}

func TestT35TheLockWorksInACluster(t *testing.T) {
	cluster := redistest.Cluster(t)
	works(t, "x", cluster.Client(t), cluster.Client(t))
}

func TestT35TheLockWorksOverTLSWithFewRights(t *testing.T) {
	cert, key, roots := certificate(t)
	port := freePort(t)
	s := redistest.RealOnly(t, "--tls-port", port, "--tls-cert-file", cert, "--tls-key-file", key, "--tls-ca-cert-file", cert, "--tls-auth-clients", "no")
	limit(t, s.Client(t))
	edit := func(o *redis.Options) {
		o.Addr, o.Username, o.Password = net.JoinHostPort("127.0.0.1", port), "few", "p"
		o.TLSConfig = &tls.Config{RootCAs: roots}
	}
	works(t, "x", s.Client(t, edit), s.Client(t, edit))
}

// certificate makes one that signs itself, good for loopback.
func certificate(t *testing.T) (certFile, keyFile string, roots *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IsCA: true,
		BasicConstraintsValid: true, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	must(t, err)
	private, err := x509.MarshalPKCS8PrivateKey(key)
	must(t, err)
	dir := t.TempDir()
	certFile, keyFile = filepath.Join(dir, "cert"), filepath.Join(dir, "key")
	certText := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert})
	must(t, os.WriteFile(certFile, certText, 0o600))
	must(t, os.WriteFile(keyFile, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}), 0o600))
	roots = x509.NewCertPool()
	roots.AppendCertsFromPEM(certText)
	return certFile, keyFile, roots
}

func freePort(t *testing.T) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer ln.Close()
	_, port, err := net.SplitHostPort(ln.Addr().String())
	must(t, err)
	return port
}

// TestT35TheLockWorksBehindSentinel: after a failover too. The lease that the replica knows of goes on.
func TestT35TheLockWorksBehindSentinel(t *testing.T) {
	primary, _ := replicated(t)
	options := redistest.Sentinel(t, primary.Addr())
	client := func() *redis.Client {
		c := redis.NewFailoverClient(options)
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	a, b := client(), client()
	works(t, "before", a, b)
	k := onReal(t, a)
	l := lock(t, k, "kept", WithLease(30*time.Second))
	inStep(t, primary)
	must(t, primary.Kill())
	redistest.Eventually(t, 20*time.Second, func() bool { return l.Refresh(t.Context()) == nil }, "the lease is renewed by the new primary")
	_, err := onReal(t, b).TryLock(t.Context(), "kept")
	is(t, "who comes then", err, ErrBusy)
	must(t, l.Unlock(t.Context()))
	next := lock(t, k, "kept")
	if next.Fence() <= l.Fence() {
		t.Errorf("fences: %d, then %d", l.Fence(), next.Fence())
	}
	must(t, next.Unlock(t.Context()))
	works(t, "after", a, b)
}

// inStep waits until the replica has what the primary has.
func inStep(t *testing.T, primary *redistest.Server) {
	t.Helper()
	n, err := primary.Client(t).Wait(t.Context(), 1, 5*time.Second).Result()
	must(t, err)
	equal(t, "replicas", n, 1)
}
