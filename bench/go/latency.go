package main

import (
	"context"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"runtime"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// latency sends records at a fixed rate and reads them back. A record carries the time at which it was to be
// sent, whether or not the producer came to it then: a broker that stalls is charged for all that had to wait.
func latency(arguments []string) (map[string]any, error) {
	flags := flag.NewFlagSet("latency", flag.ExitOnError)
	brokers := flags.String("brokers", "", "host:port")
	topic := flags.String("topic", "", "new and empty")
	rate := flags.Float64("rate", 1000, "records/s")
	seconds := flags.Float64("seconds", 5, "that count")
	warm := flags.Float64("warm-up", 1, "seconds before, that do not count")
	size := flags.Int("size", 100, "bytes, at least 8")
	_ = flags.Parse(arguments)

	common := []kgo.Opt{kgo.SeedBrokers(*brokers)}
	producer, err := kgo.NewClient(append(common, kgo.DefaultProduceTopic(*topic), kgo.ProducerLinger(0),
		kgo.ProducerBatchCompression(kgo.NoCompression()), kgo.MaxBufferedRecords(1_000_000))...)
	if err != nil {
		return nil, err
	}
	defer producer.Close()
	consumer, err := kgo.NewClient(append(common, kgo.ConsumeTopics(*topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))...)
	if err != nil {
		return nil, err
	}
	defer consumer.Close()
	if err := producer.Ping(context.Background()); err != nil {
		return nil, err
	}

	skipped := int(*rate * *warm)
	total := skipped + int(*rate**seconds)
	var failed, acknowledged atomic.Int64
	base := time.Now().Add(300 * time.Millisecond)
	go func() {
		runtime.LockOSThread()
		for i := range total {
			due := base.Add(time.Duration(float64(i) / *rate * 1e9))
			for wait := time.Until(due); wait > 0; wait = time.Until(due) {
				// Go's own timers are good to a millisecond only.
				pause := syscall.NsecToTimespec(int64(wait))
				_ = syscall.Nanosleep(&pause, nil)
			}
			value := make([]byte, *size)
			binary.BigEndian.PutUint64(value, uint64(due.Sub(base)))
			producer.Produce(context.Background(), &kgo.Record{Value: value}, func(_ *kgo.Record, err error) {
				if err != nil {
					failed.Add(1)
				} else {
					acknowledged.Add(1)
				}
			})
		}
	}()

	took := make([]int64, 0, total)
	read := 0
	limit, cancel := context.WithDeadline(context.Background(),
		base.Add(time.Duration((*warm+*seconds+30)*1e9)))
	defer cancel()
	for read < total {
		fetches := consumer.PollFetches(limit)
		if limit.Err() != nil {
			return nil, fmt.Errorf("read %d of %d records in time", read, total)
		}
		if err := errors.Join(errorsOf(fetches)...); err != nil {
			return nil, err
		}
		now := time.Since(base)
		skip := time.Duration(*warm * 1e9)
		fetches.EachRecord(func(record *kgo.Record) {
			read++
			due := time.Duration(binary.BigEndian.Uint64(record.Value))
			if due >= skip {
				took = append(took, int64(now-due))
			}
		})
	}
	if err := producer.Flush(limit); err != nil {
		return nil, err
	}
	if read != total || acknowledged.Load() != int64(total) {
		return nil, fmt.Errorf("sent %d, acknowledged %d, read %d, failed %d", total, acknowledged.Load(), read, failed.Load())
	}
	counted := len(took)
	return map[string]any{"records": total, "counted": counted, "us": quantiles(took)}, nil
}

func errorsOf(fetches kgo.Fetches) (found []error) {
	fetches.EachError(func(_ string, _ int32, err error) { found = append(found, err) })
	return found
}

// consume reads a topic with as many independent consumers as asked, each of them all of it, decoding every record.
func consume(arguments []string) (map[string]any, error) {
	flags := flag.NewFlagSet("consume", flag.ExitOnError)
	brokers := flags.String("brokers", "", "host:port")
	topic := flags.String("topic", "", "")
	records := flags.Int("records", 0, "in the topic")
	consumers := flags.Int("consumers", 1, "")
	fetchBytes := flags.Int("fetch", 1<<20, "bytes for each partition")
	_ = flags.Parse(arguments)

	results := make(chan error, *consumers)
	var size atomic.Int64
	begin := time.Now()
	for range *consumers {
		go func() {
			client, err := kgo.NewClient(kgo.SeedBrokers(*brokers), kgo.ConsumeTopics(*topic),
				kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchMaxPartitionBytes(int32(*fetchBytes)))
			if err != nil {
				results <- err
				return
			}
			defer client.Close()
			limit, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
			defer cancel()
			read := 0
			for read < *records && limit.Err() == nil {
				fetches := client.PollFetches(limit)
				if err := errors.Join(errorsOf(fetches)...); err != nil {
					results <- err
					return
				}
				fetches.EachRecord(func(record *kgo.Record) { read++; size.Add(int64(len(record.Value))) })
			}
			if read != *records {
				results <- fmt.Errorf("read %d of %d records", read, *records)
				return
			}
			results <- nil
		}()
	}
	for range *consumers {
		if err := <-results; err != nil {
			return nil, err
		}
	}
	return map[string]any{
		"records": *records * *consumers, "bytes": size.Load(), "seconds": time.Since(begin).Seconds(),
	}, nil
}
