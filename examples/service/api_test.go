package main

import (
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// Without Redis the cache is the same in one process, so a test of the handlers needs none.
func TestTheAPIAnswersFromTheCache(t *testing.T) {
	db, err := openDatabase(t.Context(), filepath.Join(t.TempDir(), "users.db"))
	must(t, err)
	defer db.Close()
	users, err := NewUsers(db, nil, time.Minute)
	must(t, err)
	defer users.Close()
	api := routes(users)

	for _, tc := range []struct {
		method, path, body string
		status             int
		answer             string
		reads              int64 // queries so far
	}{
		{"GET", "/users/1", "", 404, "no such user", 1},
		{"GET", "/users/1", "", 404, "no such user", 1},
		{"PUT", "/users/1", `{"name": "Ada"}`, 200, `{"id":1,"name":"Ada","version":1}`, 1},
		{"GET", "/users/1", "", 200, `{"id":1,"name":"Ada","version":1}`, 2},
		{"PUT", "/users/1", `{"name": "Bea"}`, 200, `{"id":1,"name":"Bea","version":2}`, 2},
		{"GET", "/users/1", "", 200, `{"id":1,"name":"Bea","version":2}`, 3},
		{"GET", "/users/1", "", 200, `{"id":1,"name":"Bea","version":2}`, 3},
		{"GET", "/users/one", "", 400, "a user's id is a number", 3},
		{"PUT", "/users/1", `{}`, 400, `want {"name": "…"}`, 3},
		{"GET", "/healthz", "", 200, "ok", 3},
	} {
		w := httptest.NewRecorder()
		api.ServeHTTP(w, httptest.NewRequest(tc.method, tc.path, strings.NewReader(tc.body)))
		got := strings.TrimSpace(w.Body.String())
		if w.Code != tc.status || got != tc.answer || users.Stats().Reads != tc.reads {
			t.Fatalf("%s %s: %d %s after %d queries; want %d %s after %d",
				tc.method, tc.path, w.Code, got, users.Stats().Reads, tc.status, tc.answer, tc.reads)
		}
	}
}

func TestAFailingDatabaseIsAServiceThatAsksToBeTriedLater(t *testing.T) {
	db, err := openDatabase(t.Context(), filepath.Join(t.TempDir(), "users.db"))
	must(t, err)
	users, err := NewUsers(db, nil, time.Minute)
	must(t, err)
	defer users.Close()
	must(t, db.Close())
	api := routes(users)

	statuses := map[int]string{}
	for range 2 { // the first fails, the second is spared
		w := httptest.NewRecorder()
		api.ServeHTTP(w, httptest.NewRequest("GET", "/users/1", nil))
		statuses[w.Code] = w.Header().Get("Retry-After")
	}
	if statuses[http.StatusServiceUnavailable] != "1" || len(statuses) != 2 || users.Stats().Reads != 1 {
		t.Errorf("status and Retry-After %v after %d queries", statuses, users.Stats().Reads)
	}
}
