package main

import (
	"bufio"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
)

// readTrace reads a recorded key sequence: gzip of consecutive 4-byte words, one per access, each word a key.
func readTrace(path string) (*workload, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("-trace: %w", err)
	}
	defer file.Close()
	w, err := decodeTrace(file)
	if err != nil {
		return nil, fmt.Errorf("-trace %s: %w", path, err)
	}
	return w, nil
}

func decodeTrace(file io.Reader) (*workload, error) {
	unzipped, err := gzip.NewReader(file)
	if err != nil {
		return nil, fmt.Errorf("not a gzip file: %w", err)
	}
	w, known := new(workload), map[uint32]uint32{}
	in := bufio.NewReaderSize(unzipped, 1<<16)
	for {
		var word [4]byte
		switch _, err := io.ReadFull(in, word[:]); {
		case err == nil:
			w.visit(known, binary.BigEndian.Uint32(word[:]))
		case !errors.Is(err, io.EOF):
			return nil, fmt.Errorf("cut off or damaged after %d accesses: %w", len(w.walk), err)
		case len(w.walk) == 0:
			return nil, errors.New("no accesses in it")
		default:
			return w, nil
		}
	}
}

// visit adds one access. The words are numbered in the order of their first appearance, in known.
func (w *workload) visit(known map[uint32]uint32, word uint32) {
	index, ok := known[word]
	if !ok {
		index = uint32(len(w.names))
		known[word] = index
		w.names = append(w.names, "key-"+strconv.FormatUint(uint64(word), 16))
	}
	w.walk = append(w.walk, index)
}
