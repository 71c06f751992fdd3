package redistest

import (
	"bufio"
	"errors"
	"io"
	"strconv"
	"strings"
)

var errProtocol = errors.New("redistest: not a request of the Redis protocol")

// readRequest reads one request and returns its bytes as they came: an array of
// bulk strings, or a line in the manner of telnet.
func readRequest(r *bufio.Reader) ([]byte, error) {
	raw, err := r.ReadBytes('\n')
	if err != nil || raw[0] != '*' {
		return raw, err
	}
	n, err := number(raw)
	if err != nil {
		return nil, err
	}
	for range n {
		if raw, err = appendBulk(raw, r); err != nil {
			return nil, err
		}
	}
	return raw, nil
}

func appendBulk(raw []byte, r *bufio.Reader) ([]byte, error) {
	head, err := r.ReadBytes('\n')
	if err != nil {
		return nil, err
	}
	n, err := number(head)
	if err != nil || head[0] != '$' {
		return nil, errProtocol
	}
	raw = append(raw, head...)
	start := len(raw)
	raw = append(raw, make([]byte, n+2)...)
	_, err = io.ReadFull(r, raw[start:])
	return raw, err
}

// number parses a line such as "*3\r\n".
func number(line []byte) (int, error) {
	n, err := strconv.Atoi(strings.TrimRight(string(line[1:]), "\r\n"))
	if err != nil || n < 0 || n > 512<<20 {
		return 0, errProtocol
	}
	return n, nil
}
