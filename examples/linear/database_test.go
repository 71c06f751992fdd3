package linear

import (
	"crypto/rand"
	"database/sql"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	_ "github.com/jackc/pgx/v5/stdlib" // registers "pgx"
	_ "modernc.org/sqlite"             // registers "sqlite"
)

// openDatabase opens the PostgreSQL database at this URL, else the SQLite file of that name.
func openDatabase(at string) (*sql.DB, error) {
	driver := "pgx"
	if !strings.HasPrefix(at, "postgres") {
		driver, at = "sqlite", "file:"+at+"?_pragma=busy_timeout(10000)&_pragma=journal_mode(WAL)&_pragma=synchronous(OFF)"
	}
	db, err := sql.Open(driver, at)
	if err == nil {
		db.SetMaxOpenConns(5)
		db.SetMaxIdleConns(5)
	}
	return db, err
}

// newDatabase makes the register, in a schema of its own of the PostgreSQL at DATABASE_URL, or in
// an SQLite file.
func newDatabase(t *testing.T) (at string) {
	t.Helper()
	at = os.Getenv("DATABASE_URL")
	if strings.HasPrefix(at, "postgres") {
		t.Log("DATABASE: POSTGRESQL AT DATABASE_URL")
		at = schemaAt(t, at)
	} else {
		t.Log("DATABASE: SQLITE")
		at = filepath.Join(t.TempDir(), "register.db")
	}
	db, err := openDatabase(at)
	must(t, err)
	defer db.Close()
	_, err = db.Exec(`CREATE TABLE register (value BIGINT NOT NULL)`)
	must(t, err)
	_, err = db.Exec(`INSERT INTO register (value) VALUES (1)`)
	must(t, err)
	return at
}

// schemaAt makes a schema for this test, so that nobody's tables are touched.
func schemaAt(t *testing.T, at string) string {
	name := "levee_" + strings.ToLower(rand.Text())
	u, err := url.Parse(at)
	must(t, err)
	q := u.Query()
	q.Set("search_path", name)
	u.RawQuery = q.Encode()

	db, err := openDatabase(at)
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
