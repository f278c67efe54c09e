package main

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"sort"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// conn is one connection that sends a request and waits for its answer.
type conn struct {
	net.Conn
	correlation int32
	formatter   *kmsg.RequestFormatter
	out, in     []byte
}

func dial(address string) (*conn, error) {
	raw, err := net.DialTimeout("tcp", address, 30*time.Second)
	if err != nil {
		return nil, err
	}
	return &conn{Conn: raw, formatter: kmsg.NewRequestFormatter(kmsg.FormatterClientID("load"))}, nil
}

// ask returns the decoded answer; it points into the connection's buffer and is good until the next ask.
func (c *conn) ask(request kmsg.Request) (kmsg.Response, error) {
	c.correlation++
	c.out = c.formatter.AppendRequest(c.out[:0], request, c.correlation)
	if _, err := c.Write(c.out); err != nil {
		return nil, err
	}
	var head [8]byte
	if _, err := io.ReadFull(c, head[:]); err != nil {
		return nil, err
	}
	if got := int32(binary.BigEndian.Uint32(head[4:])); got != c.correlation {
		return nil, fmt.Errorf("answer %d to request %d", got, c.correlation)
	}
	size := int(binary.BigEndian.Uint32(head[:])) - 4
	if cap(c.in) < size {
		c.in = make([]byte, size)
	}
	body := c.in[:size]
	if _, err := io.ReadFull(c, body); err != nil {
		return nil, err
	}
	response := request.ResponseKind()
	if request.IsFlexible() && request.Key() != 18 {
		body = body[1:] // no tagged fields in the header
	}
	if err := response.ReadFrom(body); err != nil {
		return nil, fmt.Errorf("answer to API %d v%d: %w", request.Key(), request.GetVersion(), err)
	}
	return response, nil
}

// endOffsets returns the first and the end offset of each partition.
func endOffsets(c *conn, topic string, partitions int) (first, end []int64, err error) {
	for _, at := range []struct {
		timestamp int64
		into      *[]int64
	}{{-2, &first}, {-1, &end}} {
		request := kmsg.NewListOffsetsRequest()
		request.Version = 4
		request.ReplicaID = -1
		wanted := kmsg.NewListOffsetsRequestTopic()
		wanted.Topic = topic
		for i := range partitions {
			row := kmsg.NewListOffsetsRequestTopicPartition()
			row.Partition, row.Timestamp, row.CurrentLeaderEpoch = int32(i), at.timestamp, -1
			wanted.Partitions = append(wanted.Partitions, row)
		}
		request.Topics = append(request.Topics, wanted)
		answer, err := c.ask(&request)
		if err != nil {
			return nil, nil, err
		}
		*at.into = make([]int64, partitions)
		for _, row := range answer.(*kmsg.ListOffsetsResponse).Topics[0].Partitions {
			if row.ErrorCode != 0 {
				return nil, nil, fmt.Errorf("ListOffsets: error %d", row.ErrorCode)
			}
			(*at.into)[row.Partition] = row.Offset
		}
	}
	return first, end, nil
}

// quantiles sorts nanoseconds in place and returns microseconds.
func quantiles(nanoseconds []int64) map[string]float64 {
	sort.Slice(nanoseconds, func(i, j int) bool { return nanoseconds[i] < nanoseconds[j] })
	result := map[string]float64{}
	if len(nanoseconds) == 0 {
		return result
	}
	for name, share := range map[string]float64{"p50": .5, "p99": .99, "p999": .999, "max": 1} {
		at := int(share * float64(len(nanoseconds)))
		if at >= len(nanoseconds) {
			at = len(nanoseconds) - 1
		}
		result[name] = float64(nanoseconds[at]) / 1e3
	}
	return result
}
