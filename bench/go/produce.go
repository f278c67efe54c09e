package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

type producing struct {
	brokers, topic, payloads, compression, acks string
	records, batch, connections                 int
	rate                                        float64
	idempotent                                  bool
	lingerMs                                    int
}

func (p *producing) options() ([]kgo.Opt, error) {
	codecs := map[string]kgo.CompressionCodec{
		"none": kgo.NoCompression(), "lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
	}
	acks := map[string]kgo.Acks{"0": kgo.NoAck(), "1": kgo.LeaderAck(), "all": kgo.AllISRAcks()}
	codec, known := codecs[p.compression]
	wanted, knownAcks := acks[p.acks]
	if !known || !knownAcks {
		return nil, fmt.Errorf("unknown -compression %q or -acks %q", p.compression, p.acks)
	}
	options := []kgo.Opt{
		kgo.SeedBrokers(p.brokers), kgo.DefaultProduceTopic(p.topic),
		kgo.ProducerBatchCompression(codec), kgo.RequiredAcks(wanted),
		kgo.ProducerBatchMaxBytes(int32(p.batch)), kgo.ProducerLinger(time.Duration(p.lingerMs) * time.Millisecond),
		kgo.MaxBufferedRecords(max(2000, 400_000/p.connections)), kgo.MaxBufferedBytes(max(1<<21, (64<<20)/p.connections)),
		kgo.RecordPartitioner(kgo.UniformBytesPartitioner(p.batch, false, false, nil)),
	}
	if !p.idempotent {
		options = append(options, kgo.DisableIdempotentWrite(), kgo.MaxProduceRequestsInflightPerBroker(5))
	}
	return options, nil
}

// readPayloads returns the lines of a file: every client of the benchmark sends the same records.
func readPayloads(path string) ([][]byte, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	return bytes.Split(bytes.TrimSpace(data), []byte("\n")), nil
}

func produce(arguments []string) (map[string]any, error) {
	p := &producing{}
	flags := flag.NewFlagSet("produce", flag.ExitOnError)
	flags.StringVar(&p.brokers, "brokers", "", "host:port")
	flags.StringVar(&p.topic, "topic", "", "")
	flags.StringVar(&p.payloads, "payloads", "", "file with one record value a line")
	flags.StringVar(&p.compression, "compression", "none", "none, lz4, zstd")
	flags.StringVar(&p.acks, "acks", "all", "0, 1, all")
	flags.IntVar(&p.records, "records", 1000, "in all")
	flags.IntVar(&p.batch, "batch", 16384, "bytes")
	flags.IntVar(&p.connections, "connections", 1, "producers, each with a connection of its own")
	flags.Float64Var(&p.rate, "rate", 0, "records/s in all; 0: as fast as it goes")
	flags.BoolVar(&p.idempotent, "idempotent", false, "")
	flags.IntVar(&p.lingerMs, "linger", 5, "ms")
	_ = flags.Parse(arguments)
	options, err := p.options()
	if err != nil {
		return nil, err
	}
	values, err := readPayloads(p.payloads)
	if err != nil {
		return nil, err
	}

	clients := make([]*kgo.Client, p.connections)
	for i := range clients {
		if clients[i], err = kgo.NewClient(options...); err != nil {
			return nil, err
		}
		defer clients[i].Close()
		if err = clients[i].Ping(context.Background()); err != nil {
			return nil, err
		}
	}
	var acknowledged, size atomic.Int64
	failures := make([]error, p.connections)
	begin := time.Now()
	var group sync.WaitGroup
	for i, client := range clients {
		share := p.records / p.connections
		if i < p.records%p.connections {
			share++
		}
		group.Add(1)
		go func() {
			defer group.Done()
			var mutex sync.Mutex
			promise := func(record *kgo.Record, err error) {
				if err != nil {
					mutex.Lock()
					failures[i] = err
					mutex.Unlock()
					return
				}
				acknowledged.Add(1)
				size.Add(int64(len(record.Value)))
			}
			pace := p.rate / float64(p.connections)
			for n := range share {
				if pace > 0 {
					due := begin.Add(time.Duration(float64(n) / pace * 1e9))
					if wait := time.Until(due); wait > 500*time.Microsecond {
						time.Sleep(wait)
					}
				}
				client.Produce(context.Background(), &kgo.Record{Value: values[(n+i)%len(values)]}, promise)
			}
			if err := client.Flush(context.Background()); err != nil {
				mutex.Lock()
				failures[i] = err
				mutex.Unlock()
			}
		}()
	}
	group.Wait()
	seconds := time.Since(begin).Seconds()
	if err := errors.Join(failures...); err != nil {
		return nil, err
	}
	if got := acknowledged.Load(); got != int64(p.records) {
		return nil, fmt.Errorf("%d of %d records were acknowledged", got, p.records)
	}
	return map[string]any{"records": p.records, "bytes": size.Load(), "seconds": seconds}, nil
}

func transact(arguments []string) (map[string]any, error) {
	flags := flag.NewFlagSet("transact", flag.ExitOnError)
	brokers := flags.String("brokers", "", "host:port")
	topic := flags.String("topic", "", "with a partition for each producer")
	producers := flags.Int("producers", 1, "")
	seconds := flags.Float64("seconds", 5, "")
	_ = flags.Parse(arguments)

	var committed atomic.Int64
	failures := make([]error, *producers)
	var ready, group sync.WaitGroup
	start := make(chan time.Time)
	one := func(i int) error {
		client, err := kgo.NewClient(
			kgo.SeedBrokers(*brokers), kgo.DefaultProduceTopic(*topic), kgo.ProducerLinger(0),
			kgo.TransactionalID(fmt.Sprintf("bench-%s-%d", *topic, i)), kgo.ProducerBatchCompression(kgo.NoCompression()),
			kgo.RecordPartitioner(kgo.ManualPartitioner()),
		)
		if err != nil {
			ready.Done()
			return err
		}
		defer client.Close()
		round := func() error {
			if err := client.BeginTransaction(); err != nil {
				return err
			}
			record := &kgo.Record{Value: make([]byte, 100), Partition: int32(i)}
			if err := client.ProduceSync(context.Background(), record).FirstErr(); err != nil {
				return err
			}
			return client.EndTransaction(context.Background(), kgo.TryCommit)
		}
		err = round() // finds the coordinator and the producer id
		ready.Done()
		deadline := <-start
		for err == nil && time.Now().Before(deadline) {
			if err = round(); err == nil {
				committed.Add(1)
			}
		}
		return err
	}
	ready.Add(*producers)
	for i := range *producers {
		group.Add(1)
		go func() { defer group.Done(); failures[i] = one(i) }()
	}
	ready.Wait()
	begin := time.Now()
	for range *producers {
		start <- begin.Add(time.Duration(*seconds * 1e9))
	}
	group.Wait()
	took := time.Since(begin).Seconds()
	if err := errors.Join(failures...); err != nil {
		return nil, err
	}
	// The first of each producer came before the clock.
	all := committed.Load() + int64(*producers)
	return map[string]any{"transactions": committed.Load(), "all_transactions": all, "seconds": took}, nil
}
