// Load generator of the benchmark: one program, one subcommand for each kind of work.
//
// Every subcommand prints one JSON object on standard output with what it did and counted; anything that was
// not done as asked (an error code, a lost or doubled record) ends it with status 1 and a line on standard error.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"runtime/debug"
)

type command func(arguments []string) (map[string]any, error)

var commands = map[string]command{
	"produce":   produce,
	"latency":   latency,
	"fetch":     fetch,
	"consume":   consume,
	"members":   members,
	"consumers": consumers,
	"transact":  transact,
	"metadata":  metadata,
	"commits":   commits,
	"idle":      idle,
	"probe":     probe,
}

func main() {
	if len(os.Args) < 2 || commands[os.Args[1]] == nil {
		fmt.Fprintln(os.Stderr, "usage: kwire-load produce|latency|fetch|consume|members|consumers|transact|metadata|commits|idle|probe -help")
		os.Exit(2)
	}
	// The generator's own collector must not be what is measured.
	debug.SetGCPercent(400)
	result, err := commands[os.Args[1]](os.Args[2:])
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", os.Args[1], err)
		os.Exit(1)
	}
	if err := json.NewEncoder(os.Stdout).Encode(result); err != nil {
		os.Exit(1)
	}
}
