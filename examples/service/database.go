package main

import (
	"cmp"
	"context"
	"database/sql"
	"os"
	"path/filepath"
	"strings"

	_ "github.com/jackc/pgx/v5/stdlib" // registers "pgx"
	_ "modernc.org/sqlite"             // registers "sqlite"
)

const schema = `CREATE TABLE IF NOT EXISTS users (
	id      BIGINT PRIMARY KEY,
	name    TEXT   NOT NULL,
	version BIGINT NOT NULL
)`

// openDatabase opens the PostgreSQL database that url names, else the SQLite file of that name,
// by default one in the directory for temporary files, and makes the table.
func openDatabase(ctx context.Context, url string) (*sql.DB, error) {
	driver := "pgx"
	if !strings.HasPrefix(url, "postgres") {
		file := cmp.Or(url, filepath.Join(os.TempDir(), "levee-example.db"))
		driver, url = "sqlite", "file:"+file+"?_pragma=busy_timeout(5000)&_pragma=journal_mode(WAL)"
	}
	db, err := sql.Open(driver, url)
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(10) // of each instance; the server has a limit for all of them
	db.SetMaxIdleConns(10) // the default, 2, opens and closes connections all the time
	if _, err := db.ExecContext(ctx, schema); err != nil {
		_ = db.Close()
		return nil, err
	}
	return db, nil
}
