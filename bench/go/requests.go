package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

func apiVersions() kmsg.Request {
	request := kmsg.NewApiVersionsRequest()
	request.Version = 0
	return &request
}

func ping(c *conn) error {
	answer, err := c.ask(apiVersions())
	if err != nil {
		return err
	}
	if code := answer.(*kmsg.ApiVersionsResponse).ErrorCode; code != 0 {
		return fmt.Errorf("ApiVersions: error %d", code)
	}
	return nil
}

// untilStdinCloses is how the benchmark ends what would go on for ever.
func untilStdinCloses() chan struct{} {
	closed := make(chan struct{})
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		close(closed)
	}()
	return closed
}

// probe pings every few milliseconds and tells how long an answer took at most: how long the broker left a
// connection that asks for nothing but its attention alone. A ping that comes late for the one before it counts from when it was due.
func probe(arguments []string) (map[string]any, error) {
	flags := flag.NewFlagSet("probe", flag.ExitOnError)
	brokers := flags.String("brokers", "", "host:port")
	every := flags.Duration("every", 5*time.Millisecond, "")
	_ = flags.Parse(arguments)
	c, err := dial(*brokers)
	if err != nil {
		return nil, err
	}
	if err := ping(c); err != nil {
		return nil, err
	}
	closed := untilStdinCloses()
	var took []int64
	for due := time.Now(); ; due = due.Add(*every) {
		select {
		case <-closed:
			count := len(took)
			return map[string]any{"pings": count, "us": quantiles(took)}, nil
		case <-time.After(time.Until(due)):
		}
		sent := time.Now() // the probe's own lateness is not the broker's
		if err := ping(c); err != nil {
			return nil, err
		}
		answered := time.Now()
		took = append(took, int64(answered.Sub(sent)))
		for ; due.Add(*every).Before(answered); due = due.Add(*every) {
			took = append(took, int64(answered.Sub(due.Add(*every))))
		}
	}
}

// idle holds connections that were used once.
func idle(arguments []string) (map[string]any, error) {
	flags := flag.NewFlagSet("idle", flag.ExitOnError)
	brokers := flags.String("brokers", "", "host:port")
	count := flags.Int("connections", 1000, "")
	_ = flags.Parse(arguments)
	all := make([]*conn, *count)
	for i := range all {
		c, err := dial(*brokers)
		if err != nil {
			return nil, fmt.Errorf("connection %d: %w", i, err)
		}
		if err := ping(c); err != nil {
			return nil, fmt.Errorf("connection %d: %w", i, err)
		}
		all[i] = c
	}
	fmt.Fprintln(os.Stdout, "ready")
	<-untilStdinCloses()
	for i, c := range all {
		if err := ping(c); err != nil {
			return nil, fmt.Errorf("connection %d after a rest: %w", i, err)
		}
	}
	return map[string]any{"connections": *count}, nil
}

// repeat asks over several connections until the time is up, and returns how often.
func repeat(brokers string, connections int, seconds float64, ask func(c *conn, worker, turn int) error) (map[string]any, error) {
	failures := make([]error, connections)
	var count atomic.Int64
	var group sync.WaitGroup
	begin := time.Now()
	deadline := begin.Add(time.Duration(seconds * 1e9))
	for i := range connections {
		group.Add(1)
		go func() {
			defer group.Done()
			c, err := dial(brokers)
			for turn := 0; err == nil && time.Now().Before(deadline); turn++ {
				if err = ask(c, i, turn); err == nil {
					count.Add(1)
				}
			}
			failures[i] = err
		}()
	}
	group.Wait()
	took := time.Since(begin).Seconds()
	return map[string]any{"requests": count.Load(), "seconds": took}, errors.Join(failures...)
}

func metadata(arguments []string) (map[string]any, error) {
	flags := flag.NewFlagSet("metadata", flag.ExitOnError)
	brokers := flags.String("brokers", "", "host:port")
	topic := flags.String("topic", "", "ask for this one; none: for all")
	partitions := flags.Int("partitions", 0, "that an answer has at least")
	connections := flags.Int("connections", 2, "")
	seconds := flags.Float64("seconds", 3, "")
	_ = flags.Parse(arguments)
	return repeat(*brokers, *connections, *seconds, func(c *conn, _, _ int) error {
		request := kmsg.NewMetadataRequest()
		request.Version = 8
		if *topic != "" {
			one := kmsg.NewMetadataRequestTopic()
			one.Topic = kmsg.StringPtr(*topic)
			request.Topics = append(request.Topics, one)
		}
		answer, err := c.ask(&request)
		if err != nil {
			return err
		}
		found := 0
		for _, row := range answer.(*kmsg.MetadataResponse).Topics {
			if row.ErrorCode != 0 {
				return fmt.Errorf("Metadata: error %d", row.ErrorCode)
			}
			found += len(row.Partitions)
		}
		if found < *partitions {
			return fmt.Errorf("Metadata: %d partitions, not %d", found, *partitions)
		}
		return nil
	})
}

// coordinator returns the address of a group's coordinator; asking makes the broker create the topic of offsets.
func coordinator(address, group string) (string, error) {
	c, err := dial(address)
	if err != nil {
		return "", err
	}
	defer c.Close()
	for begin := time.Now(); time.Since(begin) < time.Minute; time.Sleep(50 * time.Millisecond) {
		request := kmsg.NewFindCoordinatorRequest()
		request.Version = 2
		request.CoordinatorKey = group
		answer, err := c.ask(&request)
		if err != nil {
			return "", err
		}
		if found := answer.(*kmsg.FindCoordinatorResponse); found.ErrorCode == 0 {
			return net.JoinHostPort(found.Host, strconv.Itoa(int(found.Port))), nil
		}
	}
	return "", errors.New("no coordinator")
}

// commits commits an offset for one group after the other.
func commits(arguments []string) (map[string]any, error) {
	flags := flag.NewFlagSet("commits", flag.ExitOnError)
	brokers := flags.String("brokers", "", "host:port")
	topic := flags.String("topic", "", "")
	groups := flags.Int("groups", 100, "")
	connections := flags.Int("connections", 4, "")
	seconds := flags.Float64("seconds", 3, "")
	_ = flags.Parse(arguments)
	if _, err := coordinator(*brokers, "group-0"); err != nil {
		return nil, err
	}
	giveUp := time.Now().Add(time.Minute)
	return repeat(*brokers, *connections, *seconds, func(c *conn, worker, turn int) error {
		for {
			request := kmsg.NewOffsetCommitRequest()
			request.Version = 5
			request.Group = fmt.Sprintf("group-%d", (turn**connections+worker)%*groups)
			request.Generation = -1
			wanted := kmsg.NewOffsetCommitRequestTopic()
			wanted.Topic = *topic
			row := kmsg.NewOffsetCommitRequestTopicPartition()
			row.Offset = int64(turn)
			wanted.Partitions = append(wanted.Partitions, row)
			request.Topics = append(request.Topics, wanted)
			answer, err := c.ask(&request)
			if err != nil {
				return err
			}
			switch code := answer.(*kmsg.OffsetCommitResponse).Topics[0].Partitions[0].ErrorCode; code {
			case 0:
				return nil
			case 14, 15, 16: // the coordinator loads
				if time.Now().After(giveUp) {
					return fmt.Errorf("OffsetCommit: still error %d", code)
				}
				time.Sleep(50 * time.Millisecond)
			default:
				return fmt.Errorf("OffsetCommit: error %d", code)
			}
		}
	})
}
