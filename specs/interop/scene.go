package main

import (
	"errors"
	"fmt"
	"math/rand"
	"net"
	"sync"
	"time"

	"github.com/hashicorp/yamux"
)

// check is one thing that must hold between the two implementations, in both roles.
type check struct {
	name    string
	share   int64 // of all payload, how many parts one run of it may use
	play    func(*scene) (string, error)
	calls   string // the chapter of caller.py, where our end opens the streams
	backlog int    // streams this end lets wait before it resets them; 0: as hashicorp/yamux has it
}

// scene is one check at work: a connection, a session over it and our end as a child.
type scene struct {
	options
	role     string
	check    check
	source   *rand.Rand
	deadline time.Time
	said     *transcript
	child    *child
	tap      *tap
	session  *yamux.Session

	released chan struct{}
	mu       sync.Mutex
	resets   int // of our end's streams, as their readers and writers here met them
}

// room is the payload one direction of this check may use: what goes one way comes back the other.
func (s *scene) room() int64 { return (s.bytes - reserve) / shares * s.check.share / 2 }

func (s *scene) play() (string, error) {
	defer s.clear()
	if err := s.connect(); err != nil {
		return "", err
	}
	detail, err := s.check.play(s)
	if err == nil && s.tap.shared > 0 {
		err = fmt.Errorf("%d frames had both data and FIN, of which this peer may lose the data", s.tap.shared)
	}
	return detail, err
}

// connect starts our end and brings up a session: who dials is the yamux client.
func (s *scene) connect() error {
	argv := []string{s.python, "-m", "inference_fleet.tunnel.echo"}
	if s.check.calls != "" {
		argv = []string{
			s.python, s.caller, "--check", s.check.calls, "--seed", fmt.Sprint(s.seed),
			"--streams", fmt.Sprint(s.streams), "--bytes", fmt.Sprint(s.room()), "--within", fmt.Sprint(s.patience.Seconds()),
		}
	}
	conn, err := s.dial(argv)
	if err != nil {
		return err
	}
	s.tap, s.released = newTap(conn), make(chan struct{})
	config := yamux.DefaultConfig()
	config.LogOutput = s.said
	config.ConnectionWriteTimeout = s.patience // a busy machine is no broken connection
	if s.check.backlog > 0 {
		config.AcceptBacklog = s.check.backlog
	}
	if s.role == "dials" {
		s.session, err = yamux.Client(s.tap, config)
	} else {
		s.session, err = yamux.Server(s.tap, config)
	}
	return err
}

func (s *scene) dial(argv []string) (net.Conn, error) {
	if s.role == "dials" {
		var err error
		if s.child, err = spawn(s.said, append(argv, "--role", "server", "--tcp", "127.0.0.1:0")...); err != nil {
			return nil, err
		}
		address, err := s.child.line(s.deadline, "listening on ")
		if err != nil {
			return nil, err
		}
		return net.DialTimeout("tcp", address, time.Until(s.deadline))
	}
	listener, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		return nil, err
	}
	defer listener.Close()
	listener.SetDeadline(s.deadline)
	address := listener.Addr().String()
	if s.child, err = spawn(s.said, append(argv, "--role", "client", "--tcp", address)...); err != nil {
		return nil, err
	}
	return listener.AcceptTCP()
}

// leave ends the session from here, then our end, which must go with status 0.
func (s *scene) leave() error {
	s.session.Close()
	if s.role == "dials" { // the connecting end leaves by itself
		s.child.terminate()
	}
	return s.child.exit(s.deadline)
}

// closed waits for the other end to close the session and to say why.
func (s *scene) closed(cause string) error {
	select {
	case <-s.session.CloseChan():
	case <-time.After(time.Until(s.deadline)):
		return errors.New("our end did not close the session in time")
	}
	said, err := s.child.line(s.deadline, "session over: ")
	if err == nil && said != cause {
		return fmt.Errorf("our end ended the session with %q, not with %q", said, cause)
	}
	return err
}

// quiet waits until no stream is left at this end.
func (s *scene) quiet() error {
	return s.wait("no stream is left", func() bool { return s.session.NumStreams() == 0 })
}

// wait asks until it is so.
func (s *scene) wait(what string, so func() bool) error {
	for !so() {
		if !time.Now().Before(s.deadline) {
			return fmt.Errorf("not in time: %s", what)
		}
		time.Sleep(time.Millisecond)
	}
	return nil
}

func (s *scene) clear() {
	if s.session != nil {
		s.session.Close()
	}
	if s.child != nil {
		s.child.kill()
	}
}
