package main

import (
	"errors"
	"flag"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	rebalanceInProgress = 27
	memberIDRequired    = 79
)

// member is one member of a classic consumer group on a connection of its own.
type member struct {
	conn       *conn
	group, id  string
	generation int32
	leads      bool
	others     []string // of the generation, if it leads
}

// join returns when the coordinator has let the member into a generation.
func (m *member) join() error {
	for giveUp := time.Now().Add(2 * time.Minute); time.Now().Before(giveUp); {
		request := kmsg.NewJoinGroupRequest()
		request.Version = 5
		request.Group, request.MemberID = m.group, m.id
		request.SessionTimeoutMillis, request.RebalanceTimeoutMillis = 60_000, 120_000
		request.ProtocolType = "consumer"
		protocol := kmsg.NewJoinGroupRequestProtocol()
		protocol.Name, protocol.Metadata = "range", make([]byte, 100)
		request.Protocols = append(request.Protocols, protocol)
		answer, err := m.conn.ask(&request)
		if err != nil {
			return err
		}
		joined := answer.(*kmsg.JoinGroupResponse)
		switch joined.ErrorCode {
		case 0:
			m.id, m.generation, m.leads = joined.MemberID, joined.Generation, joined.LeaderID == joined.MemberID
			m.others = m.others[:0]
			for _, row := range joined.Members {
				m.others = append(m.others, row.MemberID)
			}
			return nil
		case memberIDRequired:
			m.id = joined.MemberID
		case 14, 15, 16: // the coordinator loads, or is yet to be made
			time.Sleep(20 * time.Millisecond)
		default:
			return fmt.Errorf("JoinGroup: error %d", joined.ErrorCode)
		}
	}
	return errors.New("JoinGroup: no coordinator in time")
}

// sync returns the error code of SyncGroup.
func (m *member) sync() (int16, error) {
	request := kmsg.NewSyncGroupRequest()
	request.Version = 3
	request.Group, request.MemberID, request.Generation = m.group, m.id, m.generation
	if m.leads {
		for _, id := range m.others {
			row := kmsg.NewSyncGroupRequestGroupAssignment()
			row.MemberID, row.MemberAssignment = id, make([]byte, 100)
			request.GroupAssignment = append(request.GroupAssignment, row)
		}
	}
	answer, err := m.conn.ask(&request)
	if err != nil {
		return 0, err
	}
	synced := answer.(*kmsg.SyncGroupResponse)
	if synced.ErrorCode == 0 && len(synced.MemberAssignment) != 100 {
		return 0, fmt.Errorf("SyncGroup: an assignment of %d bytes", len(synced.MemberAssignment))
	}
	return synced.ErrorCode, nil
}

func (m *member) heartbeat() (int16, error) {
	request := kmsg.NewHeartbeatRequest()
	request.Version = 3
	request.Group, request.MemberID, request.Generation = m.group, m.id, m.generation
	answer, err := m.conn.ask(&request)
	if err != nil {
		return 0, err
	}
	return answer.(*kmsg.HeartbeatResponse).ErrorCode, nil
}

// settle joins, again and again, until all are in one generation.
func (m *member) settle(all int, synced []atomic.Int64, done chan struct{}) error {
	for {
		if err := m.join(); err != nil {
			return err
		}
		code, err := m.sync()
		if err != nil {
			return err
		}
		if code == rebalanceInProgress {
			continue
		}
		if code != 0 || int(m.generation) >= len(synced) {
			return fmt.Errorf("SyncGroup: error %d in generation %d", code, m.generation)
		}
		if synced[m.generation].Add(1) == int64(all) {
			close(done)
		}
		for code == 0 {
			select {
			case <-done:
				return nil
			case <-time.After(200 * time.Millisecond):
			}
			if code, err = m.heartbeat(); err != nil {
				return err
			}
		}
		if code != rebalanceInProgress {
			return fmt.Errorf("Heartbeat: error %d", code)
		}
	}
}

func together(all []*member, work func(*member) error) error {
	failures := make([]error, len(all))
	var group sync.WaitGroup
	for i, m := range all {
		group.Add(1)
		go func() { defer group.Done(); failures[i] = work(m) }()
	}
	group.Wait()
	return errors.Join(failures...)
}

// rebalance has the leader ask for one; when the group is told, everyone joins at once. No heartbeat interval is in the time.
func rebalance(all []*member) (time.Duration, error) {
	var leader, witness *member
	var others []*member
	for _, m := range all {
		if m.leads {
			leader = m
		} else {
			witness = m
			others = append(others, m)
		}
	}
	if leader == nil || witness == nil {
		return 0, errors.New("no leader, or nobody else")
	}
	before := leader.generation
	into := func(m *member) error {
		if err := m.join(); err != nil {
			return err
		}
		if m.leads && len(m.others) != len(all) {
			return fmt.Errorf("%d of %d members in the generation", len(m.others), len(all))
		}
		if code, err := m.sync(); err != nil || code != 0 {
			return errors.Join(err, fmt.Errorf("SyncGroup: error %d", code))
		}
		if m.generation != before+1 {
			return fmt.Errorf("generation %d follows %d", m.generation, before)
		}
		return nil
	}
	begin := time.Now()
	led := make(chan error, 1)
	go func() { led <- into(leader) }()
	for {
		code, err := witness.heartbeat()
		if err != nil {
			return 0, err
		}
		if code == rebalanceInProgress {
			break
		}
		if time.Since(begin) > time.Minute {
			return 0, errors.New("the group is not told of the rebalance")
		}
	}
	err := together(others, into)
	return time.Since(begin), errors.Join(err, <-led)
}

func members(arguments []string) (map[string]any, error) {
	flags := flag.NewFlagSet("members", flag.ExitOnError)
	brokers := flags.String("brokers", "", "host:port")
	name := flags.String("group", "", "new")
	count := flags.Int("members", 100, "")
	rounds := flags.Int("rounds", 5, "rebalances")
	_ = flags.Parse(arguments)
	address, err := coordinator(*brokers, *name)
	if err != nil {
		return nil, err
	}
	all := make([]*member, *count)
	for i := range all {
		connection, err := dial(address)
		if err != nil {
			return nil, err
		}
		all[i] = &member{conn: connection, group: *name}
	}
	synced, done := make([]atomic.Int64, 100_000), make(chan struct{})
	begin := time.Now()
	if err := together(all, func(m *member) error { return m.settle(*count, synced, done) }); err != nil {
		return nil, err
	}
	formed := time.Since(begin).Seconds()
	var took []float64
	for range *rounds {
		seconds, err := rebalance(all)
		if err != nil {
			return nil, err
		}
		took = append(took, seconds.Seconds())
	}
	return map[string]any{"members": *count, "form_seconds": formed, "rebalance_seconds": took}, nil
}
