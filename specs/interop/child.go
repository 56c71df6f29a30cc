package main

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"
)

// child is one of the project's own ends as a process. It dies with this program.
type child struct {
	command *exec.Cmd
	lines   chan string
	ended   chan struct{}
	said    *transcript
}

// spawn must be called from the goroutine that is locked to the main thread: the kernel ties a child's death to a thread.
func spawn(said *transcript, argv ...string) (*child, error) {
	command := exec.Command(argv[0], argv[1:]...)
	// Pings after a short silence, so that a check sees some; everything else as real fleets run.
	command.Env = append(os.Environ(), "BLACKSTART_TIMINGS=production", "BLACKSTART_TIMING_KEEPALIVE_INTERVAL_S=0.2")
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	command.Stderr = said
	stdout, err := command.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := command.Start(); err != nil {
		return nil, err
	}
	c := &child{command: command, lines: make(chan string, 64), ended: make(chan struct{}), said: said}
	go func() {
		defer close(c.ended)
		defer close(c.lines)
		scanner := bufio.NewScanner(stdout)
		for scanner.Scan() {
			fmt.Fprintf(said, "%s\n", scanner.Text())
			c.lines <- scanner.Text()
		}
		command.Wait() // after the last line, as StdoutPipe asks
	}()
	return c, nil
}

// line waits for the next line that begins with prefix and gives the rest of it.
func (c *child) line(deadline time.Time, prefix string) (string, error) {
	for {
		select {
		case line, open := <-c.lines:
			if !open {
				return "", fmt.Errorf("our end left without saying %q", prefix)
			}
			if strings.HasPrefix(line, prefix) {
				return strings.TrimPrefix(line, prefix), nil
			}
		case <-time.After(time.Until(deadline)):
			return "", fmt.Errorf("our end did not say %q in time", prefix)
		}
	}
}

func (c *child) terminate() error { return c.command.Process.Signal(syscall.SIGTERM) }

// exit waits for the end, which must have status 0.
func (c *child) exit(deadline time.Time) error {
	for {
		select {
		case <-c.lines:
		case <-c.ended:
			if code := c.command.ProcessState.ExitCode(); code != 0 {
				return fmt.Errorf("our end left with %s", c.command.ProcessState)
			}
			return nil
		case <-time.After(time.Until(deadline)):
			return fmt.Errorf("our end did not leave in time")
		}
	}
}

// kill ends what is still there; after an orderly exit it does nothing.
func (c *child) kill() {
	c.command.Process.Kill()
	for range c.lines {
	}
	<-c.ended
}

// transcript is what both ends had to say, shown when a check fails.
type transcript struct {
	mu   sync.Mutex
	text bytes.Buffer
}

const transcriptLimit = 64 << 10

func (t *transcript) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.text.Len() < transcriptLimit {
		t.text.Write(p)
	}
	return len(p), nil
}

func (t *transcript) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.text.String()
}
