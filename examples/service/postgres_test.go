package main

import (
	"crypto/rand"
	"database/sql"
	"errors"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var errNoPostgres = errors.New("no PostgreSQL here")

// database is the URL of a database for this test: of a PostgreSQL server of its own, of a schema
// of its own at DATABASE_URL, or an SQLite file. LEVEE_REQUIRE_POSTGRES=1 refuses the last.
func database(t *testing.T) string {
	t.Helper()
	own, err := startPostgres(t)
	at := os.Getenv("DATABASE_URL")
	switch {
	case err == nil:
		t.Log("DATABASE: A POSTGRESQL SERVER OF THIS TEST'S OWN")
		return own
	case !errors.Is(err, errNoPostgres):
		t.Fatal(err)
	case strings.HasPrefix(at, "postgres"):
		t.Log("DATABASE: POSTGRESQL AT DATABASE_URL")
		return schemaAt(t, at)
	case os.Getenv("LEVEE_REQUIRE_POSTGRES") == "1":
		t.Fatal(err)
	}
	t.Logf("DATABASE: SQLITE, NOT POSTGRESQL: %v", err)
	return filepath.Join(t.TempDir(), "users.db")
}

// schemaAt makes a schema for this test, so that nobody's tables are touched.
func schemaAt(t *testing.T, at string) string {
	name := "levee_" + strings.ToLower(rand.Text())
	u, err := url.Parse(at)
	must(t, err)
	q := u.Query()
	q.Set("search_path", name)
	u.RawQuery = q.Encode()

	db, err := sql.Open("pgx", at)
	must(t, err)
	_, err = db.Exec("CREATE SCHEMA " + name)
	must(t, err)
	t.Cleanup(func() {
		if _, err := db.Exec("DROP SCHEMA " + name + " CASCADE"); err != nil {
			t.Error(err)
		}
		_ = db.Close()
	})
	return u.String()
}
