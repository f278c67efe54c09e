// Copies a topic in transactions, with franz-go's defaults; bench/restarts.py describes the arguments and the lines.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

func open(bootstrap, source, name string) *kgo.GroupTransactSession {
	session, err := kgo.NewGroupTransactSession(
		kgo.SeedBrokers(strings.Split(bootstrap, ",")...),
		kgo.ConsumerGroup(name),
		kgo.TransactionalID(name),
		kgo.ConsumeTopics(source),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.RequireStableFetchOffsets(),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
	)
	if err != nil {
		fmt.Println("fatal", err)
		os.Exit(1)
	}
	return session
}

func copyRecords(session *kgo.GroupTransactSession, records []*kgo.Record, target string) (bool, error) {
	if err := session.Begin(); err != nil {
		return false, err
	}
	ctx := context.Background()
	began := time.Now()
	var made []*kgo.Record
	for _, r := range records {
		made = append(made, &kgo.Record{Topic: target, Partition: r.Partition, Value: r.Value})
	}
	err := session.ProduceSync(ctx, made...).FirstErr()
	fmt.Println("call ProduceSync", time.Since(began).Milliseconds())
	began = time.Now()
	committed, ended := session.End(ctx, kgo.TransactionEndTry(err == nil))
	fmt.Println("call End", time.Since(began).Milliseconds())
	if ended == nil && !committed {
		fmt.Println("abort", err)
	}
	return committed, ended
}

func main() {
	bootstrap, source, target, name := os.Args[1], os.Args[2], os.Args[3], os.Args[4]
	var stopping atomic.Bool
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		stopping.Store(true)
	}()
	session := open(bootstrap, source, name)
	for !stopping.Load() {
		poll, cancel := context.WithTimeout(context.Background(), 500*time.Millisecond)
		found := session.PollRecords(poll, 5)
		cancel()
		if found.NumRecords() == 0 {
			continue
		}
		if _, err := copyRecords(session, found.Records(), target); err != nil {
			fmt.Println("fatal", err)
			session.Close()
			session = open(bootstrap, source, name)
		}
		time.Sleep(200 * time.Millisecond)
	}
	session.Close()
}
