// A member of a consumer group, by franz-go: prints what it reads and commits it, until it is told to leave.
//
// Lines of its output: "assigned TOPIC N ...", "revoked TOPIC N ...", "lost TOPIC N ...", and for each record
// "record TOPIC PARTITION OFFSET VALUE". Records are printed, then committed, and no partition is given up in between: a record
// is printed twice only if the member was killed before it could commit. SIGTERM makes it leave the group.
package main

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

func main() {
	brokers := flag.String("brokers", "", "host:port,...")
	group := flag.String("group", "", "")
	topics := flag.String("topics", "", "names, or one regular expression")
	regex := flag.Bool("regex", false, "the topics are a regular expression")
	classic := flag.Bool("classic", false, "by the classic protocol")
	instance := flag.String("instance", "", "of a static member")
	flag.Parse()

	var lock sync.Mutex
	out := bufio.NewWriter(os.Stdout)
	say := func(words ...any) {
		lock.Lock()
		defer lock.Unlock()
		fmt.Fprintln(out, words...)
		out.Flush()
	}
	tell := func(what string) func(context.Context, *kgo.Client, map[string][]int32) {
		return func(_ context.Context, _ *kgo.Client, some map[string][]int32) {
			for topic, numbers := range some {
				say(what, topic, strings.Trim(fmt.Sprint(numbers), "[]"))
			}
		}
	}
	options := []kgo.Opt{
		kgo.SeedBrokers(strings.Split(*brokers, ",")...),
		kgo.ConsumerGroup(*group),
		kgo.ConsumeTopics(strings.Split(*topics, ",")...),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.DisableAutoCommit(),
		kgo.BlockRebalanceOnPoll(),
		kgo.SessionTimeout(6 * time.Second),
		kgo.HeartbeatInterval(500 * time.Millisecond),
		kgo.MetadataMinAge(200 * time.Millisecond),
		kgo.OnPartitionsAssigned(tell("assigned")),
		kgo.OnPartitionsRevoked(tell("revoked")),
		kgo.OnPartitionsLost(tell("lost")),
	}
	if *regex {
		options = append(options, kgo.ConsumeRegex())
	}
	if *instance != "" {
		options = append(options, kgo.InstanceID(*instance))
	}
	if *classic {
		options = append(options, kgo.Balancers(kgo.CooperativeStickyBalancer()))
	} else {
		options = append(options, kgo.ServerSideBalancer())
	}
	client, err := kgo.NewClient(options...)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	for ctx.Err() == nil {
		poll, cancel := context.WithTimeout(ctx, time.Second)
		found := client.PollRecords(poll, 200)
		cancel()
		found.EachRecord(func(r *kgo.Record) { say("record", r.Topic, r.Partition, r.Offset, string(r.Value)) })
		// A refused commit is tried again, since the member may be about to join; not for longer than the shortest
		// session of the tests, after which the partitions have another owner, who reads the records again.
		until := time.Now().Add(5 * time.Second)
		for found.NumRecords() > 0 {
			patience, cancel := context.WithTimeout(context.Background(), 30*time.Second)
			err := client.CommitRecords(patience, found.Records()...)
			cancel()
			if err == nil {
				break
			}
			say("error", err)
			if time.Now().After(until) {
				break
			}
			time.Sleep(50 * time.Millisecond)
		}
		client.AllowRebalance()
	}
	client.Close()
	say("left")
}
