package main

import (
	"encoding/binary"
	"fmt"
	"net"
	"sync"
	"time"
)

const (
	typeData, typeWindow, typePing, typeGoAway = 0, 1, 2, 3
	flagSYN, flagACK, flagFIN, flagRST         = 1, 2, 4, 8
	headerBytes                                = 12
	initialWindow                              = 256 * 1024
)

// seen is what passed on one stream, in and out as this program sees it.
type seen struct {
	in, out       int64
	finIn, finOut bool
	inAtFinOut    int64 // how much had come in when our FIN went out: the rest came after it
}

// tap is a connection that keeps a ledger of the frames in both directions, read from the wire and asked of neither yamux.
type tap struct {
	net.Conn
	mu       sync.Mutex
	changed  *sync.Cond
	streams  map[uint32]*seen
	payload  int64
	rstOut   int
	shared   int // frames of the peer with both data and FIN, whose data hashicorp/yamux may take for missing
	goAwayIn bool
	asked    map[uint32]bool // pings of the peer
	answered int             // those of them this side answered with their own value
	incoming parser
	outgoing parser
}

func newTap(conn net.Conn) *tap {
	t := &tap{Conn: conn, streams: map[uint32]*seen{}, asked: map[uint32]bool{}}
	t.changed = sync.NewCond(&t.mu)
	return t
}

func (t *tap) Read(p []byte) (int, error) {
	n, err := t.Conn.Read(p)
	t.note(p[:n], &t.incoming, true)
	return n, err
}

func (t *tap) Write(p []byte) (int, error) {
	n, err := t.Conn.Write(p)
	t.note(p[:n], &t.outgoing, false)
	return n, err
}

// of gives a copy of what passed on a stream.
func (t *tap) of(stream uint32) seen {
	t.mu.Lock()
	defer t.mu.Unlock()
	return *t.stream(stream)
}

// until waits for something to have passed; ask is called with the ledger locked.
func (t *tap) until(deadline time.Time, what string, ask func() bool) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	timer := time.AfterFunc(time.Until(deadline), func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.changed.Broadcast()
	})
	defer timer.Stop()
	for !ask() {
		if !time.Now().Before(deadline) {
			return fmt.Errorf("never seen on the wire: %s", what)
		}
		t.changed.Wait()
	}
	return nil
}

func (t *tap) note(p []byte, from *parser, in bool) {
	if len(p) == 0 {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for len(p) > 0 {
		if from.due > 0 {
			length := len(p)
			if uint32(length) > from.due {
				length = int(from.due)
			}
			from.due -= uint32(length)
			p = p[length:]
			t.payload += int64(length)
			stream := t.stream(from.stream)
			if in {
				stream.in += int64(length)
			} else {
				stream.out += int64(length)
			}
			if from.due == 0 && from.final {
				stream.end(in)
			}
			continue
		}
		length := copy(from.header[from.have:], p)
		from.have += length
		p = p[length:]
		if from.have == headerBytes {
			from.have = 0
			t.frame(from, in)
		}
	}
	t.changed.Broadcast()
}

func (t *tap) frame(from *parser, in bool) {
	kind, flags := from.header[1], binary.BigEndian.Uint16(from.header[2:])
	id, length := binary.BigEndian.Uint32(from.header[4:]), binary.BigEndian.Uint32(from.header[8:])
	switch kind {
	case typePing:
		if in && flags == flagSYN {
			t.asked[length] = true
		} else if !in && flags == flagACK && t.asked[length] {
			t.answered++
		}
	case typeGoAway:
		t.goAwayIn = t.goAwayIn || in
	case typeData, typeWindow:
		stream, final := t.stream(id), flags&flagFIN != 0
		if kind == typeData && length > 0 {
			from.stream, from.due, from.final = id, length, final
			if in && final {
				t.shared++
			}
		} else if final {
			stream.end(in)
		}
		if flags&flagRST != 0 && !in {
			t.rstOut++
		}
	}
}

func (t *tap) stream(id uint32) *seen {
	found := t.streams[id]
	if found == nil {
		found = &seen{}
		t.streams[id] = found
	}
	return found
}

// end notes a FIN, once all that came with it has passed.
func (s *seen) end(in bool) {
	if in {
		s.finIn = true
	} else {
		s.finOut, s.inAtFinOut = true, s.in
	}
}

// parser finds the headers in one direction.
type parser struct {
	header [headerBytes]byte
	have   int
	due    uint32 // payload before the next header
	stream uint32 // whose payload that is
	final  bool   // and whether its stream ends with it
}
