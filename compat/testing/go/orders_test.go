// Package orders has tests that command the time and the failures of a broker.
package orders

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

type object = map[string]any

type topic struct {
	Partitions []struct {
		Start int `json:"start_offset"`
		End   int `json:"end_offset"`
	}
}

func produce(t *testing.T, kwire *Kwire, topic, value string) {
	t.Helper()
	client, err := kgo.NewClient(
		kgo.SeedBrokers(kwire.BootstrapServers),
		kgo.RetryBackoffFn(func(int) time.Duration { return 10 * time.Millisecond }),
	)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if err := client.ProduceSync(ctx, &kgo.Record{Topic: topic, Value: []byte(value)}).FirstErr(); err != nil {
		t.Fatal(err)
	}
}

func TestOrders(t *testing.T) {
	kwire := Start(t)

	t.Run("a lost answer makes no duplicate", func(t *testing.T) {
		kwire.Must(t, "POST", "/v1/reset", nil, nil)
		kwire.Must(t, "POST", "/v1/topics", object{"name": "orders"}, nil)
		kwire.Must(t, "POST", "/v1/faults", object{"api": "Produce", "nth": 1, "close": true, "after_apply": true}, nil)

		produce(t, kwire, "orders", "one pizza")

		var rules struct{ Faults []struct{ Hits int } }
		kwire.Must(t, "GET", "/v1/faults", nil, &rules)
		if rules.Faults[0].Hits != 1 {
			t.Errorf("the rule has acted %d times", rules.Faults[0].Hits)
		}
		var orders topic
		kwire.Must(t, "GET", "/v1/topics/orders", nil, &orders)
		if orders.Partitions[0].End != 1 {
			t.Errorf("%d records", orders.Partitions[0].End)
		}
	})

	t.Run("records are gone after the retention time", func(t *testing.T) {
		kwire.Must(t, "POST", "/v1/reset", nil, nil)
		kwire.Must(t, "POST", "/v1/topics", object{"name": "news", "configs": object{"retention.ms": "604800000"}}, nil)
		produce(t, kwire, "news", "old news")

		kwire.Must(t, "POST", "/v1/clock/advance", object{"duration": "8d"}, nil)

		var news topic
		kwire.Must(t, "GET", "/v1/topics/news", nil, &news)
		if news.Partitions[0].Start != 1 {
			t.Errorf("the oldest record is %d", news.Partitions[0].Start)
		}
	})

	t.Run("a misspelled error is told the nearest one", func(t *testing.T) {
		err := kwire.Do("POST", "/v1/faults", object{"error": "NOT_LEADER"}, nil)
		if err == nil || !strings.Contains(err.Error(), "NOT_LEADER_OR_FOLLOWER") {
			t.Errorf("%v", err)
		}
	})
}
