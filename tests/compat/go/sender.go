package main

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/apache/inlong/inlong-tubemq/tubemq-client-twins/tubemq-client-go/client"
)

type outgoing struct {
	Topic      string            `json:"topic"`
	Body       string            `json:"body"`
	Attributes map[string]string `json:"attributes"`
	Type       string            `json:"type"`
	Time       string            `json:"time"`
}

type sender struct {
	producer     client.Producer
	stopping     atomic.Bool
	done         chan struct{}
	acknowledged []string
	failed       []string
}

// openProducer waits for the first heartbeat: the client panics when it is asked to send before.
func openProducer(asked request) (object, error) {
	var topics []string
	if err := json.Unmarshal(asked.Topics, &topics); err != nil {
		return nil, err
	}
	cfg, err := configured(asked, "topic="+strings.Join(topics, "&topic="))
	if err != nil {
		return nil, err
	}
	producer, err := client.NewProducer(cfg)
	if err != nil {
		return nil, err
	}
	mutex.Lock()
	producers[asked.Name] = &sender{producer: producer, done: make(chan struct{})}
	mutex.Unlock()
	time.Sleep(cfg.Heartbeat.Interval/2 + 500*time.Millisecond)
	return object{"topics": topics}, nil
}

func (s *sender) send(asked request) (object, error) {
	results := make([]object, len(asked.Messages))
	var left sync.WaitGroup
	for i, given := range asked.Messages {
		message, err := given.message()
		if err != nil {
			return nil, err
		}
		if asked.Async {
			left.Add(1)
			go func(i int) {
				defer left.Done()
				results[i] = s.one(message)
			}(i)
		} else {
			results[i] = s.one(message)
		}
	}
	left.Wait()
	return object{"results": results}, nil
}

func (s *sender) one(message *client.Message) (result object) {
	defer func() {
		if fault := recover(); fault != nil {
			result = object{"success": false, "code": -1, "text": fmt.Sprint(fault)}
		}
	}()
	success, code, text := s.producer.SendMessage(message)
	result = object{"success": success, "code": code, "text": text}
	if id, err := strconv.ParseInt(text, 10, 64); success && err == nil {
		result["message_id"] = id
	}
	return result
}

func (s *sender) run(asked request) {
	defer close(s.done)
	for i := 0; !s.stopping.Load(); i++ {
		time.Sleep(time.Duration(max(asked.PaceMs, 1)) * time.Millisecond)
		value := asked.Prefix + strconv.Itoa(i)
		data := []byte(value)
		result := s.one(&client.Message{Topic: asked.Topic, Data: data, DataLen: int32(len(data))})
		if result["success"] == true {
			s.acknowledged = append(s.acknowledged, value)
		} else {
			s.failed = append(s.failed, fmt.Sprint(value, " ", result["code"], " ", result["text"]))
		}
	}
}

func (s *sender) stop() object {
	s.stopping.Store(true)
	<-s.done
	return object{"acknowledged": s.acknowledged, "failed": s.failed}
}

// message puts attributes in front of the body, as its reader expects; the client itself has no way to do it.
func (given outgoing) message() (*client.Message, error) {
	body, err := base64.StdEncoding.DecodeString(given.Body)
	if err != nil {
		return nil, err
	}
	var pairs []string
	if given.Type != "" {
		pairs = append(pairs, "$msgType$="+given.Type)
	}
	if given.Time != "" {
		pairs = append(pairs, "$msgTime$="+given.Time)
	}
	for key, value := range given.Attributes {
		pairs = append(pairs, key+"="+value)
	}
	message := &client.Message{Topic: given.Topic, Data: body}
	if len(pairs) > 0 {
		text := strings.Join(pairs, ",")
		message.Flag = 1
		message.Data = binary.BigEndian.AppendUint32(nil, uint32(len(text)))
		message.Data = append(append(message.Data, text...), body...)
	}
	message.DataLen = int32(len(message.Data))
	return message, nil
}
