package main

import (
	"encoding/binary"
	"flag"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// reader asks for the bytes of its partitions over one connection, walks the headers of the batches and discards them.
type reader struct {
	conn       *conn
	topic      string
	partitions []int
	next, end  []int64 // by partition; end: stop there, exclusive
	fetchBytes int
	records    int64
	bytes      int64
}

func (r *reader) left() bool {
	for _, p := range r.partitions {
		if r.next[p] < r.end[p] {
			return true
		}
	}
	return false
}

func (r *reader) request() *kmsg.FetchRequest {
	request := kmsg.NewFetchRequest()
	request.Version = 11
	request.ReplicaID = -1
	request.SessionEpoch = -1
	request.MinBytes, request.MaxWaitMillis = 1, 500
	request.MaxBytes = int32(max(r.fetchBytes, 1<<20))
	topic := kmsg.NewFetchRequestTopic()
	topic.Topic = r.topic
	for _, p := range r.partitions {
		if r.next[p] >= r.end[p] {
			continue
		}
		row := kmsg.NewFetchRequestTopicPartition()
		row.Partition, row.FetchOffset, row.PartitionMaxBytes = int32(p), r.next[p], int32(r.fetchBytes)
		row.CurrentLeaderEpoch = -1
		topic.Partitions = append(topic.Partitions, row)
	}
	request.Topics = append(request.Topics, topic)
	return &request
}

func (r *reader) run(deadline time.Time) error {
	for turn := 0; r.left(); turn++ {
		if time.Now().After(deadline) {
			return fmt.Errorf("read %d records, then nothing more in time", r.records)
		}
		request := r.request()
		// As consumers do: who was served last comes first next time, or one partition gets it all.
		rows := request.Topics[0].Partitions
		at := turn % len(rows)
		request.Topics[0].Partitions = append(append(rows[:0:0], rows[at:]...), rows[:at]...)
		answer, err := r.conn.ask(request)
		if err != nil {
			return err
		}
		for _, topic := range answer.(*kmsg.FetchResponse).Topics {
			for _, row := range topic.Partitions {
				if row.ErrorCode != 0 {
					return fmt.Errorf("Fetch of partition %d: error %d", row.Partition, row.ErrorCode)
				}
				r.walk(int(row.Partition), row.RecordBatches)
			}
		}
	}
	return nil
}

// walk counts the batches: base offset (8), length (4), … last offset delta at 23. The last one may be cut.
func (r *reader) walk(partition int, data []byte) {
	r.bytes += int64(len(data))
	for len(data) >= 61 {
		size := 12 + int(binary.BigEndian.Uint32(data[8:]))
		if size > len(data) {
			return
		}
		next := int64(binary.BigEndian.Uint64(data)) + int64(int32(binary.BigEndian.Uint32(data[23:]))) + 1
		if next > r.next[partition] {
			r.records += next - r.next[partition]
			r.next[partition] = next
		}
		data = data[size:]
	}
}

// fetch is a client that discards: what it costs is what the broker and the kernel cost.
func fetch(arguments []string) (map[string]any, error) {
	flags := flag.NewFlagSet("fetch", flag.ExitOnError)
	brokers := flags.String("brokers", "", "host:port")
	topic := flags.String("topic", "", "")
	partitions := flags.Int("partitions", 1, "of the topic")
	consumers := flags.Int("consumers", 1, "each reads all of it")
	connections := flags.Int("connections", 1, "of each consumer, which share the partitions")
	fetchBytes := flags.Int("fetch", 1<<20, "bytes for each partition")
	tail := flags.Int("tail", 0, "read so many records that are yet to come; 0: read what is there")
	seconds := flags.Float64("seconds", 600, "give up then")
	_ = flags.Parse(arguments)

	asker, err := dial(*brokers)
	if err != nil {
		return nil, err
	}
	first, end, err := endOffsets(asker, *topic, *partitions)
	if err != nil {
		return nil, err
	}
	want := int64(0)
	for p := range end {
		want += end[p] - first[p]
	}
	if *tail > 0 {
		want = int64(*tail)
	}
	var all []*reader
	for range *consumers {
		for c := range *connections {
			r := &reader{topic: *topic, fetchBytes: *fetchBytes}
			r.next, r.end = append([]int64{}, first...), append([]int64{}, end...)
			if *tail > 0 {
				copy(r.next, end)
				for p := range r.end {
					r.end[p] = 1 << 62
				}
			}
			for p := c; p < *partitions; p += *connections {
				r.partitions = append(r.partitions, p)
			}
			if r.conn, err = dial(*brokers); err != nil {
				return nil, err
			}
			all = append(all, r)
		}
	}
	if *tail > 0 {
		fmt.Fprintln(os.Stdout, "ready")
		return tailAll(all, *consumers, want, time.Now().Add(time.Duration(*seconds*1e9)))
	}
	begin := time.Now()
	failures := make([]error, len(all))
	var group sync.WaitGroup
	for i, r := range all {
		group.Add(1)
		go func() {
			defer group.Done()
			failures[i] = r.run(begin.Add(time.Duration(*seconds * 1e9)))
		}()
	}
	group.Wait()
	took := time.Since(begin).Seconds()
	return sum(all, failures, want*int64(*consumers), took)
}

// tailAll reads until every consumer has what was to come.
func tailAll(all []*reader, consumers int, want int64, deadline time.Time) (map[string]any, error) {
	if len(all) != consumers {
		return nil, fmt.Errorf("-tail takes one connection for each consumer")
	}
	begin := time.Now()
	failures := make([]error, len(all))
	var group sync.WaitGroup
	var done atomic.Int64
	for i, r := range all {
		group.Add(1)
		go func() {
			defer group.Done()
			for r.records < want && failures[i] == nil {
				answer, err := r.conn.ask(r.request())
				if err != nil {
					failures[i] = err
					return
				}
				for _, row := range answer.(*kmsg.FetchResponse).Topics[0].Partitions {
					if row.ErrorCode != 0 {
						failures[i] = fmt.Errorf("Fetch: error %d", row.ErrorCode)
					}
					r.walk(int(row.Partition), row.RecordBatches)
				}
				if time.Now().After(deadline) {
					failures[i] = fmt.Errorf("read %d of %d records in time", r.records, want)
				}
			}
			done.Add(1)
		}()
	}
	group.Wait()
	return sum(all, failures, want*int64(consumers), time.Since(begin).Seconds())
}

func sum(all []*reader, failures []error, want int64, seconds float64) (map[string]any, error) {
	var records, size int64
	for i, r := range all {
		if failures[i] != nil {
			return nil, failures[i]
		}
		records += r.records
		size += r.bytes
	}
	if records != want {
		return nil, fmt.Errorf("read %d records, not %d", records, want)
	}
	return map[string]any{"records": records, "bytes": size, "seconds": seconds}, nil
}
