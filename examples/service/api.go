package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strconv"
	"time"

	"github.com/levee-cache/levee/cache"
)

// routes is the service's API.
func routes(users *Users) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /users/{id}", users.get)
	mux.HandleFunc("PUT /users/{id}", users.put)
	mux.HandleFunc("GET /stats", func(w http.ResponseWriter, _ *http.Request) {
		reply(w, http.StatusOK, users.Stats())
	})
	// Without Redis, or the database, an instance still serves what it can: neither is a reason
	// to take it out of service.
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	return mux
}

func (s *Users) get(w http.ResponseWriter, r *http.Request) {
	id, ok := userID(w, r)
	if !ok {
		return
	}
	u, err := s.Get(r.Context(), id)
	if err == nil || u.NotFound {
		w.Header().Set("X-Cache", fmt.Sprintf("%v, %v, %v old", u.Source, u.State, u.Age))
	}
	if err != nil {
		fail(w, r, err)
		return
	}
	reply(w, http.StatusOK, u.Value)
}

// put answers 202 instead of 200 where Redis did not confirm that the old name is gone: the
// write is made, and other instances will show it once their copies have run out.
func (s *Users) put(w http.ResponseWriter, r *http.Request) {
	id, ok := userID(w, r)
	if !ok {
		return
	}
	var body struct{ Name string }
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 1<<16)).Decode(&body); err != nil || body.Name == "" {
		http.Error(w, `want {"name": "…"}`, http.StatusBadRequest)
		return
	}
	u, err := s.Put(r.Context(), id, body.Name)
	if late, ok := errors.AsType[*cache.InvalidationError](err); ok {
		slog.Warn("others may show the old user", "id", id, "for", late.Bound, "error", err)
		reply(w, http.StatusAccepted, u)
		return
	}
	if err != nil {
		fail(w, r, err)
		return
	}
	reply(w, http.StatusOK, u)
}

func userID(w http.ResponseWriter, r *http.Request) (id int64, ok bool) {
	id, err := strconv.ParseInt(r.PathValue("id"), 10, 64)
	if err != nil {
		http.Error(w, "a user's id is a number", http.StatusBadRequest)
	}
	return id, err == nil
}

// fail answers with what the error means to a client.
func fail(w http.ResponseWriter, r *http.Request, err error) {
	backoff, failing := errors.AsType[*cache.BackoffError](err)
	switch {
	case errors.Is(err, cache.ErrNotFound):
		http.Error(w, "no such user", http.StatusNotFound)
	case errors.Is(err, context.Canceled) && r.Context().Err() != nil:
		// the client has left
	case failing:
		retryAfter(w, backoff.RetryAfter)
	case errors.Is(err, cache.ErrOverloaded):
		retryAfter(w, time.Second)
	default:
		slog.Error("request failed", "path", r.URL.Path, "error", err)
		http.Error(w, "try again later", http.StatusInternalServerError)
	}
}

func retryAfter(w http.ResponseWriter, d time.Duration) {
	w.Header().Set("Retry-After", strconv.Itoa(int((d+time.Second-1)/time.Second)))
	http.Error(w, "try again later", http.StatusServiceUnavailable)
}

func reply(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // a failure is the client's that has left
}
