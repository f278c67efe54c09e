package main

import (
	"errors"
	"flag"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// consumer is one member of a group of the consumer protocol (KIP-848) on a connection of its own.
type consumer struct {
	conn             *conn
	group, id, topic string
	epoch            int32
	owned            []kmsg.ConsumerGroupHeartbeatRequestTopic
}

// beat sends one heartbeat; what the answer takes away is given up at once, and told with the next one.
func (c *consumer) beat(epoch int32) error {
	for giveUp := time.Now().Add(2 * time.Minute); time.Now().Before(giveUp); {
		request := kmsg.NewConsumerGroupHeartbeatRequest()
		request.Version = 1
		request.Group, request.MemberID, request.MemberEpoch = c.group, c.id, epoch
		if epoch == 0 {
			c.owned = []kmsg.ConsumerGroupHeartbeatRequestTopic{}
			request.RebalanceTimeoutMillis = 120_000
			request.SubscribedTopicNames = []string{c.topic}
		}
		request.Topics = c.owned
		answer, err := c.conn.ask(&request)
		if err != nil {
			return err
		}
		said := answer.(*kmsg.ConsumerGroupHeartbeatResponse)
		switch said.ErrorCode {
		case 0:
			c.epoch = said.MemberEpoch
			if said.Assignment != nil {
				c.owned = []kmsg.ConsumerGroupHeartbeatRequestTopic{}
				for _, row := range said.Assignment.Topics {
					has := kmsg.NewConsumerGroupHeartbeatRequestTopic()
					has.TopicID, has.Partitions = row.TopicID, append([]int32(nil), row.Partitions...)
					c.owned = append(c.owned, has)
				}
			}
			return nil
		case 14, 15, 16: // the coordinator loads, or is yet to be made
			time.Sleep(20 * time.Millisecond)
		default:
			return fmt.Errorf("ConsumerGroupHeartbeat: error %d", said.ErrorCode)
		}
	}
	return errors.New("ConsumerGroupHeartbeat: no coordinator in time")
}

// settled is whether all are in one epoch, and have all partitions together.
func settled(all []*consumer, partitions int) bool {
	seen := map[int32]bool{}
	for _, c := range all {
		if c.epoch != all[0].epoch {
			return false
		}
		for _, row := range c.owned {
			for _, number := range row.Partitions {
				if seen[number] {
					return false // somebody has to be told that it was taken away
				}
				seen[number] = true
			}
		}
	}
	return len(seen) == partitions
}

// settle has everyone send a heartbeat, round by round, until the group has settled in a newer epoch; it returns how many rounds.
func settle(all []*consumer, partitions int, after int32) (int, error) {
	for rounds := 1; rounds <= 1000; rounds++ {
		failures := make(chan error, len(all))
		for _, c := range all {
			go func() { failures <- c.beat(c.epoch) }()
		}
		var found error
		for range all {
			found = errors.Join(found, <-failures)
		}
		if found != nil {
			return 0, found
		}
		if all[0].epoch > after && settled(all, partitions) {
			return rounds, nil
		}
	}
	return 0, errors.New("the group does not settle")
}

func consumers(arguments []string) (map[string]any, error) {
	flags := flag.NewFlagSet("consumers", flag.ExitOnError)
	brokers := flags.String("brokers", "", "host:port")
	name := flags.String("group", "", "new")
	topic := flags.String("topic", "", "exists")
	partitions := flags.Int("partitions", 0, "of the topic")
	count := flags.Int("members", 100, "")
	rounds := flags.Int("rounds", 5, "rebalances")
	_ = flags.Parse(arguments)
	address, err := coordinator(*brokers, *name)
	if err != nil {
		return nil, err
	}
	open := func(number int) (*consumer, error) {
		connection, err := dial(address)
		id := fmt.Sprintf("member-%06d", number)
		return &consumer{conn: connection, group: *name, id: id, topic: *topic}, err
	}
	all := make([]*consumer, *count)
	for i := range all {
		var err error
		if all[i], err = open(i); err != nil {
			return nil, err
		}
	}
	begin := time.Now()
	failures := make(chan error, len(all))
	for _, c := range all {
		go func() { failures <- c.beat(0) }()
	}
	var found error
	for range all {
		found = errors.Join(found, <-failures)
	}
	if found != nil {
		return nil, found
	}
	if _, err := settle(all, *partitions, 0); err != nil {
		return nil, err
	}
	formed := time.Since(begin).Seconds()
	var took []float64
	beats := 0
	for i := range *rounds {
		joiner, err := open(*count + i)
		if err != nil {
			return nil, err
		}
		before := all[0].epoch
		begin := time.Now()
		if err := joiner.beat(0); err != nil {
			return nil, err
		}
		needed, err := settle(append(all, joiner), *partitions, before)
		if err != nil {
			return nil, err
		}
		took = append(took, time.Since(begin).Seconds())
		beats += needed
		before = joiner.epoch
		if err := joiner.beat(-1); err != nil {
			return nil, err
		}
		joiner.conn.Close()
		if _, err := settle(all, *partitions, before); err != nil {
			return nil, err
		}
	}
	return map[string]any{
		"members": *count, "form_seconds": formed, "rebalance_seconds": took,
		"rounds": float64(beats) / float64(*rounds),
	}, nil
}
