package main

import (
	"bytes"
	"fmt"
	"math"
	"math/rand"
)

const (
	largest = 64 << 20
	chunk   = 32 << 10
)

// draw gives sizes that are log-uniform between one byte and 64 MiB and never more than room in all. A size is drawn
// from what is left, so the last ones are smaller; the edges of a window and the two ends of the range are always there.
func draw(source *rand.Rand, count int, room int64) []int64 {
	edges := []int64{1, largest, initialWindow - 1, initialWindow, initialWindow + 1}
	sizes := make([]int64, 0, count)
	for len(sizes) < count {
		left := room - int64(count-len(sizes)-1)
		limit := math.Min(largest, float64(left))
		size := int64(math.Exp(source.Float64() * math.Log(limit)))
		if at := len(sizes); at < len(edges) && edges[at] <= left {
			size = edges[at]
		}
		sizes = append(sizes, size)
		room -= size
	}
	source.Shuffle(count, func(i, j int) { sizes[i], sizes[j] = sizes[j], sizes[i] })
	return sizes
}

func total(sizes []int64) (sum, most int64) {
	for _, size := range sizes {
		sum += size
		if size > most {
			most = size
		}
	}
	return sum, most
}

// content is the bytes of one seed, made in order: once by who sends them and once more by who compares.
type content struct {
	source *rand.Rand
	at     int64
	buffer [chunk]byte
}

func newContent(seed int64) *content { return &content{source: rand.New(rand.NewSource(seed))} }

func (c *content) next(length int64) []byte {
	if length > chunk {
		length = chunk
	}
	c.source.Read(c.buffer[:length])
	c.at += length
	return c.buffer[:length]
}

// Write compares what came with what must come, byte for byte.
func (c *content) Write(p []byte) (int, error) {
	for done := 0; done < len(p); {
		want := c.next(int64(len(p) - done))
		got := p[done : done+len(want)]
		if !bytes.Equal(want, got) {
			for i := range want {
				if want[i] != got[i] {
					return done, fmt.Errorf("byte %d is %#02x and must be %#02x", c.at-int64(len(want)-i), got[i], want[i])
				}
			}
		}
		done += len(want)
	}
	return len(p), nil
}
