// A yamux peer nobody of this project wrote, hashicorp/yamux, plays both roles against the project's own ends: it dials
// and accepts, opens the streams (our end is `python -m inference_fleet.tunnel.echo`) and serves them (our end is
// caller.py). Each check has a connection of its own and prints one line, HELD or FAILED.
package main

import (
	"flag"
	"fmt"
	"io"
	"math/rand"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"time"
)

type options struct {
	python, caller string
	seed           int64
	streams        int
	bytes          int64
	patience       time.Duration
}

func main() {
	runtime.LockOSThread()
	var options options
	quiet := flag.Bool("quiet", false, "print what failed and the last line only")
	only := flag.String("only", "", "the checks whose name this regular expression matches")
	flag.StringVar(&options.python, "python", "python3", "interpreter that has our package")
	flag.StringVar(&options.caller, "caller", filepath.Join("specs", "interop", "caller.py"), "our end that opens streams")
	flag.Int64Var(&options.seed, "seed", 0, "of sizes and contents; 0: of the clock")
	flag.IntVar(&options.streams, "streams", 200, "streams at once in the checks of content")
	flag.Int64Var(&options.bytes, "bytes", 1<<30, "payload of all checks together, at most")
	flag.DurationVar(&options.patience, "patience", 120*time.Second, "how long one check may take")
	flag.CommandLine.Init("ci/interop", flag.ContinueOnError)
	flag.CommandLine.SetOutput(io.Discard)
	switch err := flag.CommandLine.Parse(os.Args[1:]); {
	case err == flag.ErrHelp:
		flag.CommandLine.SetOutput(os.Stdout)
		flag.PrintDefaults()
		os.Exit(0)
	case err != nil:
		fmt.Fprintf(os.Stderr, "blackstart: arguments=%q: %s; try: ci/interop -help\n", os.Args[1:], err)
		os.Exit(2)
	}
	if flag.NArg() > 0 || options.streams < 32 || options.bytes < reserve+64<<20 {
		fmt.Fprintf(os.Stderr, "blackstart: arguments=%q: no such argument, or less than 32 streams or 224 MiB; try: ci/interop -help\n", os.Args[1:])
		os.Exit(2)
	}
	if options.seed == 0 {
		options.seed = time.Now().UnixNano() & 0x7fffffff
	}
	chosen, err := regexp.Compile(*only)
	if err != nil {
		fmt.Fprintf(os.Stderr, "blackstart: only=%s: %s; try: -only window-stall\n", *only, err)
		os.Exit(2)
	}
	os.Exit(all(options, chosen, *quiet))
}

// all runs every check in both roles; 0 when all held.
func all(options options, only *regexp.Regexp, quiet bool) int {
	began := time.Now()
	held, failed, payload := 0, 0, int64(0)
	tell := func(name, detail string, err error, said string) {
		if err != nil {
			failed++
			fmt.Printf("FAILED %s %s\n", name, err)
			if said != "" {
				fmt.Printf("    %s\n", strings.ReplaceAll(strings.TrimSpace(said), "\n", "\n    "))
			}
			return
		}
		held++
		if !quiet {
			fmt.Printf("HELD %s %s\n", name, detail)
		}
	}
	for _, role := range []string{"dials", "accepts"} {
		for number, check := range checks {
			name := role + "-" + check.name
			if !only.MatchString(name) {
				continue
			}
			scene := &scene{
				options:  options,
				role:     role,
				check:    check,
				source:   rand.New(rand.NewSource(options.seed + int64(number))),
				deadline: time.Now().Add(options.patience),
				said:     &transcript{},
			}
			since := time.Now()
			detail, err := scene.play()
			if scene.tap != nil {
				payload += scene.tap.payload
			}
			tell(name, fmt.Sprintf("%s; %.1f s", detail, time.Since(since).Seconds()), err, scene.said.String())
		}
	}
	var excess error
	if payload > options.bytes {
		excess = fmt.Errorf("%d bytes of payload passed, of %d at most", payload, options.bytes)
	}
	tell("volume", fmt.Sprintf("%.1f MiB of payload in all", float64(payload)/(1<<20)), excess, "")
	fmt.Printf("interop: %d held, %d failed in %.0f s; seed %d\n", held, failed, time.Since(began).Seconds(), options.seed)
	if failed > 0 || held == 1 {
		return 1
	}
	return 0
}
