package main

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/rand"
	"strconv"
	"strings"

	"github.com/hashicorp/yamux"
)

// called plays the chapter of caller.py: our end opens the streams and gives the verdict, this end does what the first
// line of each stream says and adds what it saw itself.
func called(s *scene) (string, error) {
	if s.check.backlog > 0 { // accept nothing until all that is too much has been reset
		refused := s.streams - s.check.backlog
		err := s.tap.until(s.deadline, fmt.Sprintf("%d resets of this end", refused), func() bool { return s.tap.rstOut == refused })
		if err != nil {
			return "", err
		}
	}
	go s.serve()
	detail, err := s.child.line(s.deadline, "HELD ")
	if err != nil {
		return "", err
	}
	if err := s.child.exit(s.deadline); err != nil {
		return "", err
	}
	if s.check.calls == "reset" {
		err = s.wait("this end meets one reset", func() bool { return s.met() == 1 })
	}
	return detail, err
}

func (s *scene) met() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.resets
}

func (s *scene) serve() {
	for {
		stream, err := s.session.AcceptStream()
		if err != nil {
			return
		}
		go func() {
			err := s.answer(stream)
			if errors.Is(err, yamux.ErrConnectionReset) {
				s.mu.Lock()
				s.resets++
				s.mu.Unlock()
			} else if err != nil {
				fmt.Fprintf(s.said, "stream %d: %s\n", stream.StreamID(), err)
			}
			stream.Close()
		}()
	}
}

// answer does what a stream's first line asks.
func (s *scene) answer(stream *yamux.Stream) error {
	reader := bufio.NewReaderSize(stream, chunk)
	line, err := reader.ReadString('\n')
	if err != nil {
		return err
	}
	verb, argument, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
	number, _ := strconv.ParseInt(argument, 10, 64)
	switch verb {
	case "give": // only once all was read: what was read by its hash, so many bytes, and their hash
		read := sha256.New()
		if _, err := io.Copy(read, reader); err != nil {
			return err
		}
		made := sha256.New()
		if _, err := stream.Write(read.Sum(nil)); err != nil {
			return err
		}
		given := io.LimitReader(rand.New(rand.NewSource(number)), number)
		if _, err := io.CopyBuffer(stream, io.TeeReader(given, made), make([]byte, chunk)); err != nil {
			return err
		}
		_, err = stream.Write(made.Sum(nil))
	case "hold": // reads nothing more until it is released
		<-s.released
		_, err = io.Copy(stream, reader)
	case "echo":
		_, err = io.Copy(stream, reader)
	case "parked": // answers once that stream has used up its window
		err = s.tap.until(s.deadline, "a window's worth on the held stream", func() bool {
			return s.tap.stream(uint32(number)).in == initialWindow
		})
		if err == nil {
			_, err = io.WriteString(stream, "parked")
		}
	case "release":
		close(s.released)
		_, err = io.WriteString(stream, "released")
	case "go-away":
		if err = s.session.GoAway(); err == nil {
			_, err = io.WriteString(stream, "gone")
		}
	case "refused": // answers once no stream can be opened from here
		if err = s.refused(); err == nil {
			_, err = io.WriteString(stream, "refused")
		}
	default:
		err = fmt.Errorf("asked for %q", bytes.TrimSpace([]byte(line)))
	}
	return err
}
