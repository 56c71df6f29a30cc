package main

import (
	"errors"
	"fmt"
	"io"
	"sort"
	"sync/atomic"
	"time"

	"github.com/hashicorp/yamux"
)

// inFlight streams are in the middle of a transfer when one of the ends goes away.
const inFlight = 6

// exchange is a stream this end opens to an echo, with content of its own.
type exchange struct {
	*yamux.Stream
	scene   *scene
	size    int64
	source  *content
	read    int64
	want    *content
	written int64
}

func (s *scene) open(size int64) (*exchange, error) {
	stream, err := s.session.OpenStream()
	if err != nil {
		return nil, err
	}
	stream.SetDeadline(s.deadline)
	seed := s.source.Int63()
	return &exchange{Stream: stream, scene: s, size: size, source: newContent(seed), want: newContent(seed)}, nil
}

// send writes length more bytes of the content.
func (e *exchange) send(length int64) error {
	for length > 0 {
		part := e.source.next(length)
		n, err := e.Write(part)
		atomic.AddInt64(&e.written, int64(n))
		if err != nil {
			return fmt.Errorf("stream %d after %d bytes written: %w", e.StreamID(), e.written, err)
		}
		length -= int64(n)
	}
	return nil
}

// receive reads until size bytes came back and compares them. This yamux reads an empty buffer as the end of file once
// its own half is closed, though the peer has not finished; what the wire says tells the two apart.
func (e *exchange) receive(upto int64) error {
	buffer := make([]byte, chunk)
	for e.read < upto {
		n, err := e.Read(buffer)
		e.read += int64(n)
		if _, wrong := e.want.Write(buffer[:n]); wrong != nil {
			return fmt.Errorf("stream %d: %w", e.StreamID(), wrong)
		}
		if e.read == upto {
			break // what comes with the last byte is about a window update nobody needs any more
		}
		if err == io.EOF {
			if passed := e.scene.tap.of(e.StreamID()); passed.finIn && passed.in < upto {
				return fmt.Errorf("stream %d ended after %d of %d bytes", e.StreamID(), passed.in, upto)
			}
			if !time.Now().Before(e.scene.deadline) {
				return fmt.Errorf("stream %d: %d of %d bytes in time", e.StreamID(), e.read, upto)
			}
			time.Sleep(time.Millisecond)
		} else if err != nil && (n == 0 || err != yamux.ErrSessionShutdown) { // with bytes: only their window update went nowhere
			return fmt.Errorf("stream %d after %d bytes read: %w", e.StreamID(), e.read, err)
		}
	}
	return nil
}

// finish sends the rest, closes this half and wants the rest back, the peer's end of file and not a byte more.
func (e *exchange) finish() error {
	sent := make(chan error, 1)
	go func() {
		err := e.send(e.size - atomic.LoadInt64(&e.written))
		if err == nil {
			err = e.Close()
		}
		sent <- err
	}()
	if err := e.receive(e.size); err != nil {
		return err
	}
	if err := <-sent; err != nil {
		return err
	}
	id := e.StreamID()
	err := e.scene.tap.until(e.scene.deadline, fmt.Sprintf("the end of stream %d", id), func() bool {
		return e.scene.tap.stream(id).finIn
	})
	if passed := e.scene.tap.of(id); err == nil && passed.in != e.size {
		err = fmt.Errorf("stream %d: %d bytes came back of %d", id, passed.in, e.size)
	}
	return err
}

// start opens count streams and stops in the middle: half is sent and the first of it is back.
func (s *scene) start(count int, size int64) ([]*exchange, error) {
	var running []*exchange
	for len(running) < count {
		next, err := s.open(size)
		if err != nil {
			return nil, err
		}
		if err := next.send(size / 2); err != nil {
			return nil, err
		}
		if err := next.receive(1); err != nil {
			return nil, err
		}
		running = append(running, next)
	}
	return running, nil
}

func finishAll(running []*exchange) error {
	ends := make(chan error, len(running))
	for _, one := range running {
		go func(e *exchange) { ends <- e.finish() }(one)
	}
	var first error
	for range running {
		if err := <-ends; err != nil && first == nil {
			first = err
		}
	}
	return first
}

// transfers: many streams at once, of every size, come back as they went.
func transfers(s *scene) (string, error) {
	sizes := draw(s.source, s.streams, s.room())
	var running []*exchange
	for _, size := range sizes {
		next, err := s.open(size)
		if err != nil {
			return "", err
		}
		running = append(running, next)
	}
	if err := finishAll(running); err != nil {
		return "", err
	}
	if err := s.quiet(); err != nil {
		return "", err
	}
	sum, most := total(sizes)
	return fmt.Sprintf("%d streams at once, 1 to %d bytes, %.1f MiB each way, byte for byte", len(sizes), most, float64(sum)/(1<<20)), s.leave()
}

// halfClose: this half is closed while the greater part of the answer has not come, and it comes.
func halfClose(s *scene) (string, error) {
	const size = initialWindow + initialWindow/2
	stream, err := s.open(size)
	if err != nil {
		return "", err
	}
	if err := stream.send(size); err != nil {
		return "", err
	}
	if err := stream.Close(); err != nil {
		return "", err
	}
	if err := stream.finish(); err != nil {
		return "", err
	}
	late := size - s.tap.of(stream.StreamID()).inAtFinOut
	if late < initialWindow/2 {
		return "", fmt.Errorf("only %d bytes came after this half was closed", late)
	}
	if err := s.quiet(); err != nil {
		return "", err
	}
	return fmt.Sprintf("%d of %d bytes came after this half was closed", late, size), s.leave()
}

// goAwaySaid: this end says go-away; what runs finishes, what is new is reset, and the peer closes after the last.
func goAwaySaid(s *scene) (string, error) {
	running, err := s.start(inFlight, 512<<10)
	if err != nil {
		return "", err
	}
	if err := s.session.GoAway(); err != nil {
		return "", err
	}
	late, err := s.open(1)
	if err != nil {
		return "", err
	}
	if _, err := late.Read(make([]byte, 1)); !errors.Is(err, yamux.ErrConnectionReset) {
		return "", fmt.Errorf("a stream opened after go-away ended with %v", err)
	}
	if err := finishAll(running); err != nil {
		return "", err
	}
	return fmt.Sprintf("%d running streams finished, a new one was reset", len(running)), s.gone()
}

func (s *scene) gone() error {
	if err := s.closed("the peer went away and the last stream ended"); err != nil {
		return err
	}
	return s.leave()
}

// goAwayHeard: our end says it when it is asked to stop, and leaves after the last stream.
func goAwayHeard(s *scene) (string, error) {
	running, err := s.start(inFlight, 512<<10)
	if err != nil {
		return "", err
	}
	if err := s.child.terminate(); err != nil {
		return "", err
	}
	if err := s.refused(); err != nil {
		return "", err
	}
	if err := finishAll(running); err != nil {
		return "", err
	}
	if err := s.closed("closed here"); err != nil {
		return "", err
	}
	return fmt.Sprintf("%d running streams finished, no new one opened, then it left", len(running)), s.child.exit(s.deadline)
}

// refused waits for our end's go-away to hold here.
func (s *scene) refused() error {
	if err := s.tap.until(s.deadline, "a go-away of our end", func() bool { return s.tap.goAwayIn }); err != nil {
		return err
	}
	var met error
	err := s.wait("new streams are refused", func() bool { // the frame was on the wire a moment before yamux reads it
		_, met = s.session.OpenStream()
		return met != nil
	})
	if err == nil && met != yamux.ErrRemoteGoAway {
		err = fmt.Errorf("a new stream after our end's go-away ended with %w", met)
	}
	return err
}

// ping: both ends ask and both are answered, beside a transfer and in silence.
func ping(s *scene) (string, error) {
	const count = 20
	stream, err := s.open(2 << 20)
	if err != nil {
		return "", err
	}
	transfer := make(chan error, 1)
	go func() { transfer <- stream.finish() }()
	var trips []time.Duration
	for len(trips) < count {
		trip, err := s.session.Ping()
		if err != nil {
			return "", fmt.Errorf("ping %d: %w", len(trips)+1, err)
		}
		trips = append(trips, trip)
	}
	if err := <-transfer; err != nil {
		return "", err
	}
	if err := s.tap.until(s.deadline, "a ping of our end, answered", func() bool { return s.tap.answered > 0 }); err != nil {
		return "", err
	}
	sort.Slice(trips, func(i, j int) bool { return trips[i] < trips[j] })
	if s.session.IsClosed() {
		return "", errors.New("the session ended")
	}
	return fmt.Sprintf("%d answered beside a transfer, median %s; our end's answered too", count, trips[count/2].Round(time.Microsecond)), s.leave()
}

// stall: nobody reads one stream; it parks within its window and the others go on.
func stall(s *scene) (string, error) {
	const size, others = 4 << 20, 16
	stalled, err := s.open(size)
	if err != nil {
		return "", err
	}
	sent := make(chan error, 1)
	go func() { sent <- stalled.send(size) }()
	id := stalled.StreamID()
	parked := func() bool { return s.tap.stream(id).in == initialWindow }
	if err := s.tap.until(s.deadline, "a window's worth on the stalled stream", parked); err != nil {
		return "", err
	}
	var running []*exchange
	for len(running) < others {
		next, err := s.open(initialWindow)
		if err != nil {
			return "", err
		}
		running = append(running, next)
	}
	if err := finishAll(running); err != nil {
		return "", err
	}
	passed := s.tap.of(id)
	if passed.in != initialWindow || passed.out > size/2 {
		return "", fmt.Errorf("the stalled stream took %d bytes and gave %d", passed.out, passed.in)
	}
	if err := stalled.receive(size); err != nil {
		return "", err
	}
	if err := <-sent; err != nil {
		return "", err
	}
	if err := stalled.finish(); err != nil {
		return "", err
	}
	if err := s.quiet(); err != nil {
		return "", err
	}
	return fmt.Sprintf("parked after %d bytes of %d while %d others finished, then went on", passed.in, size, others), s.leave()
}
