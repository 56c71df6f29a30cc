package main

// checks run in this order, each once dialling and once accepting. In the second half our end opens the streams, as a
// replica does towards its workers.
var checks = []check{
	{name: "content", share: 10, play: transfers},
	{name: "half-close", play: halfClose},
	{name: "go-away-said", play: goAwaySaid},
	{name: "go-away-heard", play: goAwayHeard},
	{name: "ping", play: ping},
	{name: "window-stall", play: stall},
	{name: "called-content", share: 3, play: called, calls: "content"},
	{name: "called-half-close", play: called, calls: "half-close"},
	{name: "called-reset", play: called, calls: "reset"},
	{name: "called-backlog", play: called, calls: "backlog", backlog: 16},
	{name: "called-go-away-said", play: called, calls: "go-away-said"},
	{name: "called-go-away-heard", play: called, calls: "go-away-heard"},
	{name: "called-ping", play: called, calls: "ping"},
	{name: "called-window-stall", play: called, calls: "window-stall"},
}

// shares of both roles together, and what the checks without a share need at most.
const (
	shares  = 2 * (10 + 3)
	reserve = 160 << 20
)
