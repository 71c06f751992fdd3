package redistest

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"time"
)

// info is what a server says about itself.
type info struct {
	name    string // "" for Redis
	version string
	pid     int
	locked  bool // it wants a password before it says anything
}

func (i info) kind(program string) string {
	if i.version == "" {
		return program
	}
	return program + " " + i.version
}

// program guesses the name of the server program.
func (i info) program() string {
	if i.name == "" {
		return "redis-server"
	}
	return i.name + "-server"
}

// serverInfo asks without a client library: those log each refused connection,
// and a starting server refuses many.
func serverInfo(addr string) (info, error) {
	conn, err := net.DialTimeout("tcp", addr, time.Second)
	if err != nil {
		return info{}, err
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(time.Second))
	if _, err := io.WriteString(conn, "INFO server\r\n"); err != nil {
		return info{}, err
	}
	return readInfo(bufio.NewReader(conn))
}

func readInfo(r *bufio.Reader) (info, error) {
	head, err := r.ReadString('\n')
	if err != nil {
		return info{}, err
	}
	head = strings.TrimSpace(head)
	if strings.HasPrefix(head, "-NOAUTH") {
		return info{locked: true}, nil
	}
	n, err := strconv.Atoi(strings.TrimPrefix(head, "$"))
	if err != nil {
		return info{}, fmt.Errorf("redistest: INFO was answered by %q", head)
	}
	text := make([]byte, n)
	if _, err := io.ReadFull(r, text); err != nil {
		return info{}, err
	}
	return parseInfo(string(text)), nil
}

func parseInfo(text string) info {
	var i info
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		switch name {
		case "server_name":
			i.name = value
		case "redis_version":
			if i.version == "" {
				i.version = value
			}
		case "valkey_version":
			i.version = value
		case "process_id":
			i.pid, _ = strconv.Atoi(value)
		}
	}
	return i
}
